// SPDX-License-Identifier: Apache-2.0
//! Steps that fail, in words.

use serde::{Deserialize, Serialize};

use crate::observed::Failure;
use crate::plan::StepKey;

/// A step that fails.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureStatus {
    /// What it is about.
    pub step: String,
    /// In words, with all causes.
    pub error: String,
    /// How often in a row.
    pub count: u32,
}

pub(super) fn failure_status(key: StepKey, failure: &Failure) -> FailureStatus {
    let step = match key {
        StepKey::Advertise => "advertise".to_owned(),
        StepKey::Record => "record".to_owned(),
        StepKey::Address(address) => format!("address {address}"),
        StepKey::Sysctl(setting) => format!("sysctl {setting}"),
        StepKey::Interfaces => "settings of external interfaces".to_owned(),
        StepKey::Timeouts => "timeouts of IPVS".to_owned(),
        StepKey::Connections => "connection table".to_owned(),
        StepKey::Daemon(role) => format!("{role} sync daemon"),
        StepKey::VirtualService(service) => format!("virtual service {service}"),
        StepKey::Retired(retired) => format!("virtual service {retired}"),
        StepKey::Speaker => "speaker".to_owned(),
        StepKey::VirtualRouters => "virtual routers".to_owned(),
    };
    FailureStatus { step, error: failure.error.clone(), count: failure.count }
}
