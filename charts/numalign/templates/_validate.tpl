{{/* What cannot work together is said here, in one sentence each, before anything is installed. */}}
{{- define "numalign.validate" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: is empty and serviceAccount.create is false; name the account that exists" }}
{{- end }}
{{- if .Values.uninstall.release }}
{{- if and (not .Values.uninstall.serviceAccountName) (not (and .Values.serviceAccount.create .Values.rbac.create)) }}
{{- fail "uninstall.serviceAccountName: is empty, and serviceAccount.create or rbac.create is false; name an account with the rights of deploy/access/rbac-uninstall.yaml, or set uninstall.release: false" }}
{{- end }}
{{- if eq .Values.uninstall.serviceAccountName (include "numalign.serviceAccountName" .) }}
{{- fail "uninstall.serviceAccountName: is the agents' account, whose rights are others; name another one" }}
{{- end }}
{{- end }}
{{- if and (eq (toString .Values.config.onMisalignment) "evict") (not .Values.rbac.eviction) }}
{{- fail "config.onMisalignment: evict needs rbac.eviction: true; read there what that allows" }}
{{- end }}
{{- if and (.Values.config.refusals | default dict).deleteAfter (not .Values.rbac.cleanup) }}
{{- fail "config.refusals.deleteAfter: needs rbac.cleanup: true; read there what that allows" }}
{{- end }}
{{- if and .Values.gatekeeper.enabled (not (.Values.config.fleet).publish) }}
{{- fail "gatekeeper.enabled: needs config.fleet.publish: true; it decides by what the nodes publish" }}
{{- end }}
{{- if and (eq (toString .Values.config.enforcement) "nri") (not .Values.nri.enabled) }}
{{- fail "config.enforcement: nri needs nri.enabled: true" }}
{{- end }}
{{- if and .Values.nri.readMemoryPolicies .Values.openshift.enabled }}
{{- fail "nri.readMemoryPolicies: needs hostPID and SYS_PTRACE, which openshift.enabled does not allow; set one of them to false" }}
{{- end }}
{{- if and .Values.priorityClass.create (hasPrefix "system-" .Values.priorityClass.name) }}
{{- fail "priorityClass.name: names of system- classes are Kubernetes' own; with priorityClass.create set another one, or an empty one" }}
{{- end }}
{{- range $key := list "name" "instance" "component" }}
{{- $label := printf "app.kubernetes.io/%s" $key }}
{{- range $value := list "commonLabels" "podLabels" }}
{{- if hasKey (get $.Values $value) $label }}
{{- fail (printf "%s: %s selects the agents' pods and cannot be another; leave it out" $value $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- $labels := dict "commonLabels" .Values.commonLabels }}
{{- range $key := list "podMonitor" "prometheusRule" "dashboards" }}
{{- $_ := set $labels (printf "monitoring.%s.labels" $key) (get $.Values.monitoring $key).labels }}
{{- end }}
{{- range $value, $found := $labels }}
{{- range $label := $own }}
{{- if hasKey $found $label }}
{{- fail (printf "%s: %s is the chart's own; leave it out" $value $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key, $_ := .Values.podAnnotations }}
{{- if hasPrefix "numalign.io/" $key }}
{{- fail (printf "podAnnotations: %s is numalign's own, on its agents' pods; leave it out" $key) }}
{{- end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if has .name (list "NODE_NAME" "POD_UID" "POD_NAME" "POD_NAMESPACE" "POD_IP" "HOST_IP") }}
{{- fail (printf "extraEnv: %s is the chart's own; leave it out" .name) }}
{{- end }}
{{- end }}
{{- range .Values.extraVolumes }}
{{- if has .name (list "config" "state" "sys" "cgroup" "nri" "pod-resources" "plugins-registry" "cpu-manager-state" "memory-manager-state") }}
{{- fail (printf "extraVolumes: %s is the name of a volume of the chart; take another one" .name) }}
{{- end }}
{{- end }}
{{- range .Values.extraVolumeMounts }}
{{- if has (trimSuffix "/" .mountPath) (list "/etc/numalign" "/var/lib/numalign" "/sys" "/sys/fs/cgroup" "/var/run/nri" "/var/lib/kubelet/pod-resources" "/host/var/lib/kubelet/plugins_registry" "/host/var/lib/kubelet/cpu_manager_state" "/host/var/lib/kubelet/memory_manager_state") }}
{{- fail (printf "extraVolumeMounts: %s is where the chart mounts its own; take another place" .mountPath) }}
{{- end }}
{{- end }}
{{- range $key, $_ := .Values.global }}
{{- range $known := list "imageRegistry" "imagePullSecrets" }}
{{- if and (ne $key $known) (eq (lower $key) (lower $known)) }}
{{- fail (printf "global.%s: is no value; write global.%s" $key $known) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not .Values.monitoring.skipCrdCheck }}
{{- if and (or .Values.monitoring.podMonitor.enabled .Values.monitoring.prometheusRule.enabled) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
{{- fail "monitoring: the API server has no monitoring.coreos.com/v1; install the Prometheus operator first, or set monitoring.skipCrdCheck: true where the chart is rendered without an API server" }}
{{- end }}
{{- end }}
{{- end }}
