{{/* The pod of a router node, the same for both kinds of workload. */}}
{{- define "vipherald.podTemplate" -}}
metadata:
  labels:
    {{- include "vipherald.selectorLabels" . | nindent 4 }}
    vipherald.io/instance: {{ include "vipherald.instance" . }}
spec:
  serviceAccountName: {{ include "vipherald.fullname" . }}
  {{- with include "vipherald.pullSecrets" . }}
  {{- . | nindent 2 }}
  {{- end }}
  hostNetwork: true
  # Peers and the API server are addresses: no name is looked up.
  dnsPolicy: Default
  enableServiceLinks: false
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "vipherald.gracePeriod" . }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "vipherald.tolerations" . | nindent 2 }}
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              vipherald.io/instance: {{ include "vipherald.instance" . }}
  {{- if and (eq .Values.workload.kind "StatefulSet") .Values.workload.spreadOver }}
  topologySpreadConstraints:
    - topologyKey: {{ .Values.workload.spreadOver }}
      maxSkew: 1
      whenUnsatisfiable: DoNotSchedule
      # Only router nodes count: others would hold up the second pod.
      nodeAffinityPolicy: Honor
      nodeTaintsPolicy: Honor
      labelSelector:
        matchLabels:
          vipherald.io/instance: {{ include "vipherald.instance" . }}
  {{- end }}
  securityContext:
    seccompProfile:
      type: RuntimeDefault
    {{- if .Values.openshift.securityContextConstraints }}
    # Else the directory of the state, which is the node's, is closed to the pod.
    seLinuxOptions:
      type: spc_t
    {{- end }}
  {{- if .Values.nodeSetup.enabled }}
  initContainers:
    {{- include "vipherald.nodeSetup" . | nindent 4 }}
  {{- end }}
  containers:
    {{- include "vipherald.container" . | nindent 4 }}
  volumes:
    - name: config
      configMap:
        name: {{ include "vipherald.fullname" . }}
    - name: state
      hostPath:
        path: {{ include "vipherald.stateDir" . }}
        type: DirectoryOrCreate
    {{- if .Values.keySecrets }}
    - name: keys
      projected:
        defaultMode: 0400
        sources:
          {{- range .Values.keySecrets }}
          - secret:
              name: {{ . }}
          {{- end }}
    {{- end }}
    {{- if .Values.nodeSetup.enabled }}
    - name: modules
      hostPath:
        path: /lib/modules
        type: Directory
    {{- end }}
{{- end -}}

{{/* Those of the values, and for a StatefulSet what a DaemonSet has of itself: a router node that lost the API server is none to be left. */}}
{{- define "vipherald.tolerations" -}}
{{- $tolerations := .Values.tolerations | default list -}}
{{- if eq .Values.workload.kind "StatefulSet" -}}
{{- range list "not-ready" "unreachable" -}}
{{- $tolerations = append $tolerations (dict "key" (printf "node.kubernetes.io/%s" .) "operator" "Exists" "effect" "NoExecute") -}}
{{- end -}}
{{- range list "disk-pressure" "memory-pressure" "network-unavailable" "pid-pressure" -}}
{{- $tolerations = append $tolerations (dict "key" (printf "node.kubernetes.io/%s" .) "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- end -}}
{{- with $tolerations -}}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "vipherald.container" -}}
- name: vipherald
  image: {{ include "vipherald.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [vipherald, run, --config, /etc/vipherald/config/vipherald.yaml]
  env:
    {{- include "vipherald.env" . | nindent 4 }}
  ports:
    - name: http
      containerPort: {{ include "vipherald.httpPort" . }}
      hostPort: {{ include "vipherald.httpPort" . }}
      protocol: TCP
  # Alive is who answers while its loops turn; a stop by the kubelet keeps what is in the kernel.
  startupProbe:
    {{- include "vipherald.probe" (dict "root" . "path" "/healthz") | nindent 4 }}
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 30
  livenessProbe:
    {{- include "vipherald.probe" (dict "root" . "path" "/healthz") | nindent 4 }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  readinessProbe:
    {{- include "vipherald.probe" (dict "root" . "path" "/readyz") | nindent 4 }}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 2
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    runAsUser: 0
    allowPrivilegeEscalation: false
    privileged: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
      add: [NET_ADMIN, NET_RAW, NET_BIND_SERVICE{{ if .Values.realtime }}, SYS_NICE{{ end }}]
  volumeMounts:
    - name: config
      mountPath: /etc/vipherald/config
      readOnly: true
    - name: state
      mountPath: {{ include "vipherald.stateDir" . }}
    {{- if .Values.keySecrets }}
    - name: keys
      mountPath: /etc/vipherald/keys
      readOnly: true
    {{- end }}
{{- end -}}

{{- define "vipherald.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- with include "vipherald.httpHost" .root }}
  host: {{ . | quote }}
  {{- end }}
{{- end -}}

{{/* The variables of the configuration. */}}
{{- define "vipherald.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: NODE_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* What takes privileges, once before the daemon. */}}
{{- define "vipherald.nodeSetup" -}}
- name: node-setup
  image: {{ .Values.nodeSetup.image | default (include "vipherald.image" .) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/bin/sh, /etc/vipherald/config/node-setup.sh]
  env:
    - name: MODULES
      value: {{ join " " .Values.nodeSetup.modules | quote }}
    - name: INTERFACE
      value: {{ dig "node" "externalInterface" "" .Values.config | quote }}
    - name: SYSCTLS
      value: |
        {{- range $key, $value := .Values.nodeSetup.sysctls }}
        {{ $key }}={{ $value }}
        {{- end }}
  resources:
    {{- toYaml .Values.nodeSetup.resources | nindent 4 }}
  securityContext:
    runAsUser: 0
    privileged: true
    readOnlyRootFilesystem: true
  volumeMounts:
    - name: config
      mountPath: /etc/vipherald/config
      readOnly: true
    - name: modules
      mountPath: /lib/modules
      readOnly: true
{{- end -}}
