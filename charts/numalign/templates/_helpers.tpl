{{/* The chart's name. */}}
{{- define "numalign.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* What every object is called: the release's name, with the chart's in it. */}}
{{- define "numalign.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "numalign.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "numalign.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "numalign.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* What selects the agents' pods; it never changes, for a DaemonSet's selector cannot. */}}
{{- define "numalign.selectorLabels" -}}
app.kubernetes.io/name: {{ include "numalign.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "numalign.labels" -}}
app.kubernetes.io/name: {{ include "numalign.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The same with an object's own over those of every object; the argument: the root, and the object's own. */}}
{{- define "numalign.labelsWith" -}}
{{- toYaml (mergeOverwrite (include "numalign.labels" (first .) | fromYaml) (last . | deepCopy)) }}
{{- end }}

{{/* What the agent's container may not do, and as whom it runs; `securityContext` comes over it, key by key. */}}
{{- define "numalign.securityContext" -}}
runAsUser: 0
runAsGroup: 0
runAsNonRoot: false
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- if .Values.nri.readMemoryPolicies }}
  add: [SYS_PTRACE]
  {{- end }}
{{- end }}

{{- define "numalign.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "numalign.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Who asks the agents before an uninstallation: made by the hook, with its rights, unless one is named. */}}
{{- define "numalign.uninstallAccount" -}}
{{- default (printf "%s-uninstall" (include "numalign.fullname" .)) .Values.uninstall.serviceAccountName }}
{{- end }}

{{/* Names of the gatekeeper: its Deployment, lease and account; its switch; the account of its removal. */}}
{{- define "numalign.gatekeeper" -}}
{{ include "numalign.fullname" . }}-gatekeeper
{{- end }}
{{- define "numalign.gateSwitch" -}}
{{ include "numalign.fullname" . }}-gate
{{- end }}
{{- define "numalign.ungate" -}}
{{ include "numalign.fullname" . }}-ungate
{{- end }}
{{- define "numalign.gatekeeperLabels" -}}
app.kubernetes.io/name: {{ include "numalign.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gatekeeper
{{- end }}

{{/* Whether the admission policy can be had: MutatingAdmissionPolicy is on by default from Kubernetes 1.36. */}}
{{- define "numalign.gates" -}}
{{- if and .Values.gatekeeper.enabled .Values.gatekeeper.admission (semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version) }}yes{{ end }}
{{- end }}

{{/* registry/repository@digest, or :tag. A registry of all charts (global) comes before this one's. */}}
{{- define "numalign.image" -}}
{{- $registry := default .Values.image.registry .Values.global.imageRegistry }}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{- define "numalign.imagePullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "numalign.priorityClassName" -}}
{{- if .Values.priorityClass.create }}
{{- default (include "numalign.fullname" .) .Values.priorityClass.name }}
{{- else }}
{{- .Values.priorityClass.name }}
{{- end }}
{{- end }}

{{/* Annotations of what exists only while the chart is being uninstalled; the argument is its place in the order. */}}
{{- define "numalign.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Whether `helm test` can prove anything: something is enforced, and its pod is not in the agents' own namespace. */}}
{{- define "numalign.tested" -}}
{{- $dry := or .Values.config.observeOnly (eq (toString .Values.config.enforcement) "dry-run") }}
{{- if and (not $dry) (ne .Values.test.namespace (include "numalign.namespace" .)) }}yes{{ end }}
{{- end }}
