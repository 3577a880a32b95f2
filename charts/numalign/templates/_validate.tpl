{{/* What cannot work together is said here, in one sentence each, before anything is installed. */}}
{{- define "numalign.validate" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: is empty and serviceAccount.create is false; name the account that exists" }}
{{- end }}
{{- if and (eq (toString .Values.config.onMisalignment) "evict") (not .Values.rbac.eviction) }}
{{- fail "config.onMisalignment: evict needs rbac.eviction: true; read there what that allows" }}
{{- end }}
{{- if and (.Values.config.refusals | default dict).deleteAfter (not .Values.rbac.cleanup) }}
{{- fail "config.refusals.deleteAfter: needs rbac.cleanup: true; read there what that allows" }}
{{- end }}
{{- if and (eq (toString .Values.config.enforcement) "nri") (not .Values.nri.enabled) }}
{{- fail "config.enforcement: nri needs nri.enabled: true" }}
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
{{- if not .Values.monitoring.skipCrdCheck }}
{{- if and (or .Values.monitoring.podMonitor.enabled .Values.monitoring.prometheusRule.enabled) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
{{- fail "monitoring: the API server has no monitoring.coreos.com/v1; install the Prometheus operator first, or set monitoring.skipCrdCheck: true where the chart is rendered without an API server" }}
{{- end }}
{{- end }}
{{- end }}
