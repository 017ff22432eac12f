// SPDX-License-Identifier: Apache-2.0
//! The last good content of each object that claims VIPs: it stays in force while the object holds something that is refused.
//!
//! Inputs: snapshots and the configuration, and `contents.json` of the state directory from an earlier process. Output: what [`compile`](super::compile)
//! makes of the snapshot with the last good contents in place of the refused ones, and the rejections of both. A content is good where nothing of it is
//! refused for what it says ([`RejectionReason::is_of_content`]). It takes the place of a later one only where all of it is good now: what the configuration has forbidden
//! since, or an older object has taken, does not come back.
//!
//! Invariants: an object that is gone is forgotten at once, and so is another one of the same name, as its uid tells; so there is at most one content
//! for each object. The file is disposable: without it a start in the time between a mistake and its correction has what can be had of the object as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use k8s_openapi::api::core::v1::Service;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::warn;

use super::{Compiled, Rejection, RejectionReason, Subject, compile, is_load_balancer_of_ours};
use crate::api::{EricIngress, Kind, LvsIngress, ObjectRef};
use crate::config::Config;
use crate::source::{Object, Snapshot};

const FILE: &str = "contents.json";
const VERSION: u64 = 1;

/// Contents of objects, by their names.
pub(crate) type Contents = BTreeMap<ObjectRef, Object>;

/// See the module.
#[derive(Debug, Default)]
pub struct LastGood {
    contents: Contents,
    /// The state directory does not hold it yet.
    unsaved: bool,
}

impl LastGood {
    /// What an earlier process has kept in this state directory.
    #[must_use]
    pub fn load(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let read = match fs::read(&path) {
            Ok(bytes) => parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(contents) => Self { contents, unsaved: false },
            Err(error) => {
                warn!(path = %path.display(), error, "the last good contents cannot be read, and are not used");
                Self::default()
            }
        }
    }

    /// The contents themselves, for a source that cannot read what an object holds now.
    pub(crate) const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Compiles the snapshot, with the last good content of each object that is refused as it is.
    #[must_use]
    pub fn compile(&mut self, snapshot: &Snapshot, config: &Config) -> Compiled {
        let judged = compile(snapshot, config);
        let refused = refused(&judged);
        let mut kept: Contents = refused.iter().filter_map(|name| Some((name.clone(), self.instead(name, snapshot)?))).collect();
        self.learn(snapshot, config, &refused);
        while !kept.is_empty() {
            let mut compiled = compile(&snapshot.with(&kept), config);
            let still = self::refused(&compiled);
            let before = kept.len();
            kept.retain(|name, _| !still.contains(name));
            if kept.len() == before {
                let of_newer = judged.rejections.iter().filter_map(|rejection| in_vain(rejection, &kept));
                compiled.rejections.extend(of_newer);
                compiled.rejections.sort();
                compiled.rejections.dedup();
                return Compiled { kept, ..compiled };
            }
        }
        judged
    }

    /// Keeps the contents in the state directory, if they have changed.
    ///
    /// # Errors
    /// The directory cannot be made, or the file not be written.
    pub fn save(&mut self, state_dir: &Path) -> io::Result<()> {
        if !std::mem::take(&mut self.unsaved) {
            return Ok(());
        }
        fs::create_dir_all(state_dir)?;
        let unfinished = state_dir.join(format!(".{FILE}"));
        let contents: Vec<&Object> = self.contents.values().collect();
        fs::write(&unfinished, serde_json::to_vec(&Kept { version: VERSION, contents })?)?;
        fs::rename(unfinished, state_dir.join(FILE))
    }

    /// The last good content of an object that is there, if it is another one.
    fn instead(&self, name: &ObjectRef, snapshot: &Snapshot) -> Option<Object> {
        let (good, found) = (self.contents.get(name)?, snapshot.object(name)?);
        (*good != found && good.is_that_of(found.metadata().uid.as_deref())).then(|| good.with_status_of(&found))
    }

    /// Takes in what is good, and forgets what is gone.
    fn learn(&mut self, snapshot: &Snapshot, config: &Config, refused: &BTreeSet<ObjectRef>) {
        let good = claiming(snapshot).filter(|(name, object)| config.scope.covers(name, object.metadata(), snapshot));
        let mut contents: Contents = good.collect();
        for name in refused {
            match (contents.remove(name), self.contents.get(name)) {
                (Some(found), Some(good)) if good.is_that_of(found.metadata().uid.as_deref()) => {
                    contents.insert(name.clone(), good.clone());
                }
                _ => {}
            }
        }
        if !snapshot.complete {
            let absent = self.contents.iter().filter(|(name, _)| snapshot.object(name).is_none());
            contents.extend(absent.map(|(name, object)| (name.clone(), object.clone())));
        }
        self.unsaved |= contents != self.contents;
        self.contents = contents;
    }
}

#[derive(Serialize)]
struct Kept<'a> {
    version: u64,
    contents: Vec<&'a Object>,
}

fn parse(bytes: &[u8]) -> Result<Contents, String> {
    let mut kept: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if kept.get("version") != Some(&json!(VERSION)) {
        return Err(format!("expected version {VERSION}"));
    }
    let Some(Value::Array(contents)) = kept.get_mut("contents").map(Value::take) else {
        return Err("contents: expected a list".to_owned());
    };
    contents.into_iter().enumerate().map(|(index, object)| read(object).map_err(|error| format!("contents[{index}]: {error}"))).collect()
}

fn read(value: Value) -> Result<(ObjectRef, Object), String> {
    let word = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = word(&value, "/kind");
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).ok_or("kind: expected one that claims VIPs")?;
    let name = ObjectRef { kind, namespace: word(&value, "/metadata/namespace"), name: word(&value, "/metadata/name") };
    let object = match kind {
        Kind::Service => serde_json::from_value::<Service>(value).map(|service| Object::Service(service.into())),
        Kind::EricIngress => serde_json::from_value::<EricIngress>(value).map(|ingress| Object::EricIngress(ingress.into())),
        Kind::LvsIngress => serde_json::from_value::<LvsIngress>(value).map(|ingress| Object::LvsIngress(ingress.into())),
        Kind::EndpointSlice | Kind::Node | Kind::Namespace | Kind::DaemonSet | Kind::StatefulSet => {
            return Err("kind: expected one that claims VIPs".to_owned());
        }
    };
    Ok((name, object.map_err(|error| error.to_string())?))
}

/// The objects that claim VIPs.
fn claiming(snapshot: &Snapshot) -> impl Iterator<Item = (ObjectRef, Object)> {
    let wants_vips = |service: &Service| {
        let spec = service.spec.as_ref();
        spec.is_some_and(|spec| is_load_balancer_of_ours(spec) || spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty()))
    };
    let services = snapshot.services.iter().filter(move |(_, service)| wants_vips(service));
    let services = services.map(|(name, service)| (name.clone(), Object::Service(Arc::clone(service))));
    let eric = snapshot.eric_ingresses.iter().map(|(name, ingress)| (name.clone(), Object::EricIngress(Arc::clone(ingress))));
    let lvs = snapshot.lvs_ingresses.iter().map(|(name, ingress)| (name.clone(), Object::LvsIngress(Arc::clone(ingress))));
    services.chain(eric).chain(lvs)
}

/// The objects of which something is refused for what they say.
fn refused(compiled: &Compiled) -> BTreeSet<ObjectRef> {
    let refused = compiled.rejections.iter().filter(|rejection| rejection.reason.is_of_content());
    let objects = refused.filter_map(|rejection| match &rejection.subject {
        // Who asks in vain for another policy of a VIP has the VIP.
        Subject::Object { object, vip: Some(vip) } if rejection.reason == RejectionReason::Conflict => {
            let has_it = compiled.desired.vips.get(vip).is_some_and(|vip| vip.owners.contains(object));
            (!has_it).then(|| object.clone())
        }
        Subject::Object { object, .. } => Some(object.clone()),
        Subject::File { .. } => None,
    });
    objects.collect()
}

/// What is refused of the newer content of an object that has an older one in force.
fn in_vain(rejection: &Rejection, kept: &Contents) -> Option<Rejection> {
    let Subject::Object { object, .. } = &rejection.subject else { return None };
    let good = kept.get(object).filter(|_| rejection.reason.is_of_content())?;
    let generation = good.metadata().generation.map(|generation| format!(", generation {generation},")).unwrap_or_default();
    let message = format!("{}; its last good content{generation} stays in force instead", rejection.message);
    Some(Rejection { message, ..rejection.clone() })
}
