// SPDX-License-Identifier: Apache-2.0
//! EricIngress and LvsIngress as somebody wrote them: every field may be absent, and numbers and words may be wrong.
//!
//! Input: any serde format. Output: values for the checks of [`ingress`](super::ingress). A field that is absent serialises as null, so that a value
//! that was read and written again shows which fields each level knows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::LvsIngressStatus;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EricIngress {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: EricIngressSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EricIngressSpec {
    #[serde(rename = "virtualServiceIP")]
    pub(crate) virtual_service_ip: Option<String>,
    pub(crate) backends: Backends,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Backends {
    pub(crate) name: Option<String>,
    pub(crate) config: Vec<BackendConfig>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BackendConfig {
    pub(crate) port_range: PortRanges,
    pub(crate) protocol: Option<String>,
    pub(crate) algo: Option<String>,
    pub(crate) mode: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PortRanges {
    pub(crate) vip_port_range: StartEnd,
    pub(crate) svc_port_range: StartEnd,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StartEnd {
    pub(crate) start: Option<Number>,
    pub(crate) end: Option<Number>,
}

/// What stands where a whole number is expected: anything else is told together with whatever is wrong with the object besides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Number {
    Whole(i64),
    Other(Value),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LvsIngress {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: LvsIngressSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<LvsIngressStatus>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LvsIngressSpec {
    #[serde(rename = "virtualServiceIP")]
    pub(crate) virtual_service_ip: Option<String>,
    pub(crate) backend_service: BackendService,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BackendService {
    pub(crate) service_name: Option<String>,
    pub(crate) port_mappings: Vec<LvsPortMapping>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LvsPortMapping {
    pub(crate) lb_port: Option<Number>,
    pub(crate) svc_port: Option<Number>,
    pub(crate) protocol: Option<String>,
    pub(crate) sch: Option<String>,
}

impl Default for EricIngress {
    fn default() -> Self {
        let kind = super::Kind::EricIngress;
        Self {
            api_version: kind.api_version().into(),
            kind: kind.name().into(),
            metadata: ObjectMeta::default(),
            spec: EricIngressSpec::default(),
        }
    }
}

impl Default for LvsIngress {
    fn default() -> Self {
        let kind = super::Kind::LvsIngress;
        let (metadata, spec) = (ObjectMeta::default(), LvsIngressSpec::default());
        Self { api_version: kind.api_version().into(), kind: kind.name().into(), metadata, spec, status: None }
    }
}
