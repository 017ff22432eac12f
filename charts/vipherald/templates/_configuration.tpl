{{/* The configuration file: the value `config`, with what the chart knows better. */}}
{{- define "vipherald.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "instance" (include "vipherald.instance" .) -}}
{{- $drain := $config.drain | default dict -}}
{{- if not $drain.workload -}}
{{- $pod := eq .Values.workload.kind "StatefulSet" | ternary "/${POD_NAME}" "" -}}
{{- $_ := set $drain "workload" (printf "%s/%s/%s%s" .Values.workload.kind .Release.Namespace (include "vipherald.fullname" .) $pod) -}}
{{- end -}}
{{- $_ := set $config "drain" $drain -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Whether nodes get the label externalIP, which takes a right of its own. */}}
{{- define "vipherald.labelsNodes" -}}
{{- if ne (dig "node" "labelExternalIP" true .Values.config | toString) "false" -}}true{{- end -}}
{{- end -}}

{{- define "vipherald.stateDir" -}}
{{- .Values.config.stateDir | default (printf "/run/vipherald/%s" (include "vipherald.instance" .)) -}}
{{- end -}}

{{- define "vipherald.httpAddress" -}}
{{- dig "http" "address" "0.0.0.0:9479" .Values.config -}}
{{- end -}}

{{/* Its port. */}}
{{- define "vipherald.httpPort" -}}
{{- $port := regexFind ":[0-9]+$" (include "vipherald.httpAddress" .) | trimPrefix ":" -}}
{{- if not $port -}}
{{- fail (printf "config.http.address: expected an address and a port, as in 0.0.0.0:9479, found %q" (include "vipherald.httpAddress" .)) -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{/* Where probes go, if not to the address of the node. */}}
{{- define "vipherald.httpHost" -}}
{{- $host := include "vipherald.httpAddress" . | trimSuffix (printf ":%s" (include "vipherald.httpPort" .)) | trimPrefix "[" | trimSuffix "]" -}}
{{- if not (or (has $host (list "0.0.0.0" "::")) (contains "$" $host)) -}}{{ $host }}{{- end -}}
{{- end -}}

{{/* A time of the configuration in milliseconds: with "key" and "time". */}}
{{- define "vipherald.milliseconds" -}}
{{- $sum := 0 -}}
{{- $units := dict "ms" 1 "msec" 1 "s" 1000 "sec" 1000 "second" 1000 "seconds" 1000 "m" 60000 "min" 60000 "minute" 60000 "minutes" 60000 "h" 3600000 "hr" 3600000 "hour" 3600000 "hours" 3600000 -}}
{{- $parts := regexFindAll "[0-9]+ *[a-z]+" (toString .time) -1 -}}
{{- if not $parts -}}{{- fail (printf "%s: expected a time such as 25s, found %q; the grace period of the pod depends on it" .key (toString .time)) -}}{{- end -}}
{{- range $parts -}}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | atoi) (get $units (regexFind "[a-z]+" .) | default 0)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* The grace period of the pod: as long as a drain takes at most, and 20 s. */}}
{{- define "vipherald.gracePeriod" -}}
{{- $drain := .Values.config.drain | default dict -}}
{{- $sum := 0 -}}
{{- range $key, $default := dict "gracefulShutdown" "0s" "fabricDelay" "1s" "timeout" "25s" -}}
{{- $sum = add $sum (include "vipherald.milliseconds" (dict "key" (printf "config.drain.%s" $key) "time" (get $drain $key | default $default))) -}}
{{- end -}}
{{- $least := add 20 (div (add $sum 999) 1000) -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- $least -}}
{{- else if lt (int $given) (int $least) -}}
{{- fail (printf "terminationGracePeriodSeconds: expected %d or more, 20 s beyond what a drain of this configuration takes at most, found %d" $least (int $given)) -}}
{{- else -}}
{{- int $given -}}
{{- end -}}
{{- end -}}
