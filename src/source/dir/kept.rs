// SPDX-License-Identifier: Apache-2.0
//! The last good content of each manifest file, kept in the state directory, so that a file that is bad when we start does not cost its VIPs.
//!
//! Input: the objects of a file that are in force. Output: one file of the same name with a `kind: List`, replaced as a whole. The directory is
//! disposable: without it, and where it cannot be written, everything works but a cold start with a bad file.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::json;
use tracing::warn;

use super::parse::{Found, parse};
use crate::source::Object;

/// Where contents are kept, if anywhere.
#[derive(Debug)]
pub(super) struct Kept {
    dir: Option<PathBuf>,
    /// Whether contents may be replaced.
    writable: bool,
}

impl Kept {
    /// Contents below this state directory; without one nothing is kept.
    pub(super) fn below(state_dir: Option<&Path>) -> Self {
        Self { dir: state_dir.map(|dir| dir.join("manifests")), writable: true }
    }

    /// As [`Self::below`], of another process: read and never changed.
    pub(super) fn of_another(state_dir: &Path) -> Self {
        Self { dir: Some(state_dir.join("manifests")), writable: false }
    }

    fn writable_dir(&self) -> Option<&PathBuf> {
        self.dir.as_ref().filter(|_| self.writable)
    }

    /// The content kept of this file; `None` where there is none that can be read.
    pub(super) fn load(&self, file: &OsStr) -> Option<Vec<Found>> {
        let path = self.dir.as_ref()?.join(file);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot read the kept content of a manifest file");
                return None;
            }
        };
        let parsed = parse(&text);
        if let Some(fault) = parsed.faults.first() {
            warn!(path = %path.display(), error = %fault.message, "the kept content of a manifest file is not usable");
            return None;
        }
        Some(parsed.objects)
    }

    /// Keeps these objects as the content of this file.
    pub(super) fn save<'a>(&self, file: &OsStr, objects: impl Iterator<Item = &'a Object>) {
        let Some(dir) = self.writable_dir() else { return };
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>()});
        let mut unfinished = OsString::from(".");
        unfinished.push(file);
        let unfinished = dir.join(unfinished);
        let saved = fs::create_dir_all(dir)
            .and_then(|()| fs::write(&unfinished, list.to_string()))
            .and_then(|()| fs::rename(&unfinished, dir.join(file)));
        if let Err(error) = saved {
            warn!(dir = %dir.display(), file = %file.display(), %error, "cannot keep the content of a manifest file");
        }
    }

    /// Forgets the content of a file that is gone.
    pub(super) fn remove(&self, file: &OsStr) {
        let Some(dir) = self.writable_dir() else { return };
        match fs::remove_file(dir.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(dir = %dir.display(), file = %file.display(), %error, "cannot remove the kept content of a manifest file");
            }
            _ => {}
        }
    }

    /// The files of which something is kept.
    pub(super) fn files(&self) -> Vec<OsString> {
        let entries = self.dir.as_ref().and_then(|dir| fs::read_dir(dir).ok());
        entries.into_iter().flatten().flatten().map(|entry| entry.file_name()).filter(|name| super::is_manifest(name)).collect()
    }
}
