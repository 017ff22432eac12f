{{/* A Job of a hook, and the ServiceAccount with which alone it runs: with "root", "suffix", "hook" (its events), "args", "deadline" (in seconds), if it needs
another one, and for one that asks no API server "configuration". */}}
{{- define "vipherald.hookJob" -}}
{{- $name := printf "%s-%s" (include "vipherald.fullname" .root) .suffix -}}
{{- if not .configuration -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "vipherald.hookMetadata" (dict "root" .root "hook" .hook "weight" "-20") | nindent 2 }}
---
{{ end -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "vipherald.hookMetadata" (dict "root" .root "hook" .hook "weight" (.configuration | ternary "-15" "0")) | nindent 2 }}
spec:
  activeDeadlineSeconds: {{ .deadline | default .root.Values.hooks.timeoutSeconds }}
  # A mistake stays one.
  backoffLimit: {{ .configuration | ternary 0 3 }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ include "vipherald.name" .root }}-{{ .suffix }}
        app.kubernetes.io/instance: {{ .root.Release.Name }}
    spec:
      {{- if .configuration }}
      automountServiceAccountToken: false
      {{- else }}
      serviceAccountName: {{ $name }}
      {{- end }}
      {{- with include "vipherald.pullSecrets" .root }}
      {{- . | nindent 6 }}
      {{- end }}
      restartPolicy: Never
      enableServiceLinks: false
      {{- with .root.Values.hooks.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.hooks.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        {{- if not .root.Values.openshift.securityContextConstraints }}
        runAsUser: 65534
        runAsGroup: 65534
        {{- end }}
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: {{ .suffix }}
          image: {{ include "vipherald.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command:
            {{- toYaml (prepend .args "vipherald") | nindent 12 }}
          {{- if .configuration }}
          env:
            {{- include "vipherald.env" .root | nindent 12 }}
          volumeMounts:
            - name: config
              mountPath: /etc/vipherald/config
              readOnly: true
          {{- end }}
          resources:
            {{- toYaml .root.Values.hooks.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
      {{- if .configuration }}
      volumes:
        - name: config
          configMap:
            name: {{ $name }}
      {{- end }}
{{- end -}}

{{/* Labels and annotations of what belongs to a hook: with "root", "hook" and "weight". It goes when it has done its work, and stays to be read when not. */}}
{{- define "vipherald.hookMetadata" -}}
labels:
  {{- include "vipherald.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: {{ .hook }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
