// SPDX-License-Identifier: Apache-2.0
//! The accounts of a release in a test's cluster, with the rights of the chart and no others.
#![allow(dead_code, reason = "each test file uses a part of it")]

/// The rights as the chart grants them.
pub(crate) const RIGHTS: &str = include_str!("../../charts/vipherald/files/rbac.yaml");

/// Who has them: `vipherald` the daemon's, `vipherald-crds` the hook's. They are of a release in the namespace `vip`.
pub(crate) const ACCOUNTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: vip}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: vipherald, namespace: vip}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: vipherald-crds, namespace: vip}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: vipherald}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: vipherald}
subjects: [{kind: ServiceAccount, name: vipherald, namespace: vip}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: vipherald-node-label}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: vipherald-node-label}
subjects: [{kind: ServiceAccount, name: vipherald, namespace: vip}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: vipherald-crds}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: vipherald-crds}
subjects: [{kind: ServiceAccount, name: vipherald-crds, namespace: vip}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: vipherald, namespace: vip}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: vipherald}
subjects: [{kind: ServiceAccount, name: vipherald, namespace: vip}]
"#;
