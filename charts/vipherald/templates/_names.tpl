{{/* The chart, or its alias where it is a part of another one. */}}
{{- define "vipherald.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the objects in the namespace. Short enough for what the hooks add. */}}
{{- define "vipherald.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "vipherald.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "vipherald.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The key `instance` of the configuration. On one node no two may be alike, nor in one cluster. */}}
{{- define "vipherald.instance" -}}
{{- $instance := .Values.config.instance | default (include "vipherald.fullname" . | replace "." "-") -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$" $instance) -}}
{{- fail (printf "config.instance: expected 1 to 63 of a-z, 0-9 and -, beginning with a letter and ending with a letter or digit, found %q" $instance) -}}
{{- end -}}
{{- $instance -}}
{{- end -}}

{{/* An upgrade may not change it: the next pods would not know what those before have left on their nodes. */}}
{{- define "vipherald.sameInstance" -}}
{{- $before := lookup "v1" "ConfigMap" .Release.Namespace (include "vipherald.fullname" .) -}}
{{- if and .Release.IsUpgrade $before -}}
{{- $was := dig "instance" "" (fromYaml (dig "data" "vipherald.yaml" "" $before)) -}}
{{- $is := include "vipherald.instance" . -}}
{{- if and $was (ne $was $is) -}}
{{- fail (printf "config.instance: the release is the instance %q and cannot become %q, which would not know what the first has placed on the nodes; uninstall it, and install it again" $was $is) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of what has no namespace: two releases with one instance collide here, before they meet on a node. */}}
{{- define "vipherald.clusterName" -}}
{{- $instance := include "vipherald.instance" . -}}
{{- if contains "vipherald" $instance -}}{{ $instance }}{{- else -}}vipherald-{{ $instance }}{{- end -}}
{{- end -}}

{{/* By which the workload knows its pods; never changes. */}}
{{- define "vipherald.selectorLabels" -}}
app.kubernetes.io/name: {{ include "vipherald.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "vipherald.labels" -}}
{{ include "vipherald.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "vipherald.image" -}}
{{- $registry := .Values.image.registry -}}
{{- with .Values.global -}}{{- $registry = .imageRegistry | default $registry -}}{{- end -}}
{{- with $registry -}}{{ . }}/{{- end -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest -}}@{{ .Values.image.digest }}{{- else -}}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end -}}
{{- end -}}

{{/* Secrets of the registry: names, or objects with a name. */}}
{{- define "vipherald.pullSecrets" -}}
{{- $secrets := list -}}
{{- range concat (dig "imagePullSecrets" list (.Values.global | default dict)) .Values.imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "map" . | ternary . (dict "name" .)) -}}
{{- end -}}
{{- with $secrets | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The rules of a role in files/rbac.yaml, with the names of this release's objects: with "root", "kind" and "name". */}}
{{- define "vipherald.rules" -}}
{{- $wanted := . -}}
{{- $instance := include "vipherald.instance" .root -}}
{{- $names := dict "apps" (list (include "vipherald.fullname" .root)) "coordination.k8s.io" (list $instance (printf "%s.drain" $instance)) -}}
{{- range splitList "\n---\n" (.root.Files.Get "files/rbac.yaml") -}}
{{- $role := fromYaml . -}}
{{- if and (eq $role.kind $wanted.kind) (eq $role.metadata.name $wanted.name) -}}
{{- range $rule := $role.rules -}}
{{- if and $rule.resourceNames (hasKey $names (first $rule.apiGroups)) -}}
{{- $_ := set $rule "resourceNames" (get $names (first $rule.apiGroups)) -}}
{{- end -}}
{{- end -}}
{{ toYaml $role.rules }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What binds a ServiceAccount to a role: with "root", "kind" (of the role), "role" and "account". */}}
{{- define "vipherald.bound" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
