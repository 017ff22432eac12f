// SPDX-License-Identifier: Apache-2.0
//! The text of a manifest file to typed objects.
//!
//! Input: the text. Output: each object with its place, and each [`Fault`] with how far it reaches. Pure and total: any text gives an answer.
//!
//! YAML is read as kubectl reads it (`yes` is a boolean, merge keys are followed, JSON is YAML), with three differences on the safe side: a key that
//! stands twice is an error, a number with a leading zero or an underscore is text, and what aliases may grow to is bounded.
//! A line that begins with `---` or `...` divides documents wherever it stands (YAML 1.2.2 §9.1.2), so each document is read by itself. Documents
//! are counted from 1; those that hold nothing but comments are not counted.

use std::borrow::Cow;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

use super::locate::line_of;
use crate::api::{EricIngress, FieldError, InvalidFields, Kind, LvsIngress, ObjectRef, quoted, raw};
use crate::desired::RejectionReason;
use crate::source::Object;
use crate::spelling::nearest;

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Objects in the order in which they stand there.
    pub(super) objects: Vec<Found>,
    /// What could not be read.
    pub(super) faults: Vec<Fault>,
}

/// An object and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) name: ObjectRef,
    pub(super) place: Place,
    pub(super) object: Object,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    /// Which document.
    pub(super) document: usize,
    /// Which line of the file.
    pub(super) line: u64,
}

/// Something that could not be read.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) place: Option<Place>,
    pub(super) scope: Scope,
    pub(super) reason: RejectionReason,
    pub(super) message: String,
}

/// How far a fault reaches.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Scope {
    /// It cannot be told which objects the author meant to have in this file.
    File,
    /// One object, of which it is known which.
    Object(ObjectRef),
    /// Something that is no concern of ours, unless it is the beginning of what is.
    Aside(Stub),
}

impl Scope {
    /// Whether the document with this fault may be what is left of the document of this object: a file that is cut at any point holds the beginnings
    /// of its words.
    pub(super) fn may_be(&self, object: &ObjectRef) -> bool {
        match self {
            Self::File => true,
            Self::Object(found) => found.kind == object.kind && object.name.starts_with(&found.name),
            Self::Aside(stub) => {
                stub.may_be_of(object.kind) && stub.name.as_ref().is_none_or(|found| object.name.starts_with(found.as_str()))
            }
        }
    }
}

/// What a document of another kind says of itself.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Stub {
    api_version: Option<String>,
    kind: String,
    name: Option<String>,
}

impl Stub {
    /// Whether it may be the beginning of an object that is read.
    pub(super) fn may_be_ours(&self) -> bool {
        Kind::ALL.into_iter().any(|kind| self.may_be_of(kind))
    }

    fn may_be_of(&self, kind: Kind) -> bool {
        let version = self.api_version.as_ref();
        kind.name().starts_with(&self.kind) && version.is_none_or(|found| kind.api_version().starts_with(found.as_str()))
    }

    fn of(fields: &Map<String, Value>) -> Self {
        let word = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
        let name = fields.get("metadata").and_then(|metadata| metadata.get("name"));
        Self { api_version: word(fields.get("apiVersion")), kind: word(fields.get("kind")).unwrap_or_default(), name: word(name) }
    }
}

/// Reads the text of a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    if text.trim().is_empty() {
        let message = "the file is empty; delete it to remove its objects".into();
        parsed.faults.push(Fault { place: None, scope: Scope::File, reason: RejectionReason::Malformed, message });
    }
    for (index, chunk) in chunks(text).into_iter().enumerate() {
        Document { number: index + 1, chunk }.read(&mut parsed);
    }
    parsed
}

/// How YAML is read.
pub(super) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        // A List of 20,000 endpoints passes; a document of nested aliases stops early.
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        budget: serde_saphyr::budget! { max_events: 2_000_000, max_nodes: 1_000_000 },
    }
}

/// The text of one document and the line of the file on which it starts.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    line: u64,
    text: &'a str,
}

/// Cuts a file into documents, and leaves out those without content.
fn chunks(text: &str) -> Vec<Chunk<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let chunk = |from, to, line| text.get(from..to).map(|text| Chunk { line, text });
    let mut chunks = Vec::new();
    let (mut start, mut start_line, mut holds) = (0, 1, Holds::Nothing);
    let (mut offset, mut line) = (0, 1);
    for content in text.split_inclusive('\n') {
        let (begins, ends) = (is_marker(content, "---"), is_marker(content, "..."));
        if begins && holds != Holds::Directives {
            chunks.extend(chunk(start, offset, start_line).filter(|_| holds == Holds::Content));
            (start, start_line, holds) = (offset, line, Holds::Nothing);
        }
        let after_marker = if begins { content.get(3..).unwrap_or_default() } else { content }.trim();
        if holds != Holds::Content && !ends && !after_marker.is_empty() && !after_marker.starts_with('#') {
            holds = if content.starts_with('%') { Holds::Directives } else { Holds::Content };
        }
        offset += content.len();
        line += 1;
        if ends {
            chunks.extend(chunk(start, offset, start_line).filter(|_| holds == Holds::Content));
            (start, start_line, holds) = (offset, line, Holds::Nothing);
        }
    }
    chunks.extend(chunk(start, text.len(), start_line).filter(|_| holds == Holds::Content));
    chunks
}

/// What has been seen of a document so far, besides comments.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Holds {
    Nothing,
    /// Lines that begin with `%`, which belong to the document that follows.
    Directives,
    Content,
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

/// One document on its way into a [`Parsed`].
struct Document<'a> {
    number: usize,
    chunk: Chunk<'a>,
}

impl Document<'_> {
    fn read(&self, parsed: &mut Parsed) {
        let value = match serde_saphyr::from_str_with_options::<Value>(self.chunk.text, options()) {
            Ok(value) => value,
            Err(error) => {
                let line = error.location().map_or(1, |location| location.line());
                let place = self.place(line);
                parsed.faults.push(Fault {
                    place: Some(place),
                    scope: Scope::File,
                    reason: RejectionReason::Malformed,
                    message: in_words(&error),
                });
                return;
            }
        };
        match &value {
            Value::Null => {}
            Value::Object(fields) if fields.get("kind").is_some_and(|kind| kind == "List") => self.read_list(fields, parsed),
            value => self.read_object(value, "", parsed),
        }
    }

    fn read_list(&self, fields: &Map<String, Value>, parsed: &mut Parsed) {
        match fields.get("items") {
            Some(Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.read_object(item, &format!("items[{index}]."), parsed);
                }
            }
            Some(Value::Null) => {}
            _ => parsed.faults.push(self.fault(Scope::File, RejectionReason::Malformed, "items", "expected the objects of the List")),
        }
    }

    /// Reads the object at `prefix`, which is empty for a whole document, or `items[3].`.
    fn read_object(&self, value: &Value, prefix: &str, parsed: &mut Parsed) {
        let Value::Object(fields) = value else {
            let message = "expected an object with apiVersion, kind and metadata";
            return parsed.faults.push(self.fault(Scope::File, RejectionReason::Malformed, prefix.trim_end_matches('.'), message));
        };
        let kind = match recognise(fields) {
            Recognised::Kind(kind) => kind,
            Recognised::Meant(kind, field, message) => {
                let scope = name_of(kind, fields).map_or(Scope::File, Scope::Object);
                return parsed.faults.push(self.fault(scope, RejectionReason::Invalid, &format!("{prefix}{field}"), &message));
            }
            Recognised::Other(field, message) => {
                return parsed.faults.push(self.fault(
                    Scope::Aside(Stub::of(fields)),
                    RejectionReason::Invalid,
                    &format!("{prefix}{field}"),
                    &message,
                ));
            }
            Recognised::Nothing => {
                return parsed.faults.push(self.fault(Scope::File, RejectionReason::Malformed, &format!("{prefix}kind"), "is missing"));
            }
        };
        let name = match name_of(kind, fields) {
            Ok(name) => name,
            Err(error) => {
                let path = format!("{prefix}{}", error.path);
                return parsed.faults.push(self.fault(Scope::File, RejectionReason::Malformed, &path, &error.message));
            }
        };
        match typed(kind, &name, value) {
            Ok(object) => {
                let line = if prefix.is_empty() { 1 } else { line_of(self.chunk.text, prefix) };
                parsed.objects.push(Found { name, place: self.place(line), object });
            }
            Err(errors) => parsed.faults.extend(errors.into_iter().map(|(reason, error)| {
                let path = if error.path.is_empty() { prefix.trim_end_matches('.').to_owned() } else { format!("{prefix}{}", error.path) };
                self.fault(Scope::Object(name.clone()), reason, &path, &error.message)
            })),
        }
    }

    fn fault(&self, scope: Scope, reason: RejectionReason, path: &str, message: &str) -> Fault {
        let place = self.place(line_of(self.chunk.text, path));
        let message = if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") };
        Fault { place: Some(place), scope, reason, message: in_one_line(&message) }
    }

    /// The place of a line of this document, counted from 1.
    const fn place(&self, line: u64) -> Place {
        Place { document: self.number, line: self.chunk.line + line.saturating_sub(1) }
    }
}

fn in_words(error: &serde_saphyr::Error) -> String {
    in_one_line(&UserMessageFormatter.format_message(error.without_snippet()))
}

fn in_one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// What `apiVersion` and `kind` say.
enum Recognised {
    Kind(Kind),
    /// Probably this kind, but the named field is wrong.
    Meant(Kind, &'static str, String),
    /// Some other kind.
    Other(&'static str, String),
    Nothing,
}

fn recognise(fields: &Map<String, Value>) -> Recognised {
    let Some(Value::String(word)) = fields.get("kind") else { return Recognised::Nothing };
    let api_version = fields.get("apiVersion").and_then(Value::as_str);
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == word) else {
        let group_of_ours = |kind: &Kind| api_version.is_none_or(|found| group(found) == group(kind.api_version()));
        let candidates = Kind::ALL.into_iter().filter(group_of_ours);
        let meant = candidates.map(|kind| (strsim::osa_distance(&word.to_lowercase(), &kind.name().to_lowercase()), kind)).min();
        return match meant {
            Some((0 | 1, kind)) => Recognised::Meant(kind, "kind", format!("{} is unknown; did you mean {}?", quoted(word), kind.name())),
            _ => Recognised::Other("kind", format!("{} is not read; {}", quoted(word), kinds_read(word))),
        };
    };
    let expected = kind.api_version();
    match api_version {
        Some(found) if found == expected => Recognised::Kind(kind),
        Some(found) if group(found) != group(expected) => {
            Recognised::Other("apiVersion", format!("a {word} of {} is not read; expected {expected}", quoted(found)))
        }
        Some(found) => Recognised::Meant(kind, "apiVersion", format!("{} is not read; expected {expected}", quoted(found))),
        None => Recognised::Meant(kind, "apiVersion", format!("is missing; expected {expected}")),
    }
}

fn kinds_read(found: &str) -> Cow<'static, str> {
    if found == "Endpoints" {
        return "write an EndpointSlice (discovery.k8s.io/v1) instead".into();
    }
    format!("expected {}", Kind::ALL.map(Kind::name).join(", ")).into()
}

/// The API group of an `apiVersion`.
fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// The name of an object of this kind. As with kubectl, an object without a namespace is in `default`.
fn name_of(kind: Kind, fields: &Map<String, Value>) -> Result<ObjectRef, FieldError> {
    let metadata: ObjectMeta = match fields.get("metadata") {
        Some(metadata) => deserialize(metadata, "metadata")?,
        None => ObjectMeta::default(),
    };
    let error = |field: &str, message: String| FieldError { path: format!("metadata.{field}"), message };
    let name = metadata.name.clone().filter(|name| !name.is_empty()).ok_or_else(|| error("name", "is missing".into()))?;
    if !is_dns_subdomain(&name) {
        return Err(error("name", format!("{} is no name; expected lower case letters, digits, '-' and '.'", quoted(&name))));
    }
    let namespace = match &metadata.namespace {
        _ if !kind.is_namespaced() => String::new(),
        None => "default".into(),
        Some(namespace) if is_dns_label(namespace) => namespace.clone(),
        Some(namespace) => {
            return Err(error("namespace", format!("{} is no name; expected lower case letters, digits and '-'", quoted(namespace))));
        }
    };
    Ok(ObjectRef { kind, namespace, name })
}

/// A name of RFC 1123 §2.1 as Kubernetes takes it: labels with dots between them.
fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(has_label_form)
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && has_label_form(text)
}

fn has_label_form(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.into_iter().all(|end| end.is_some_and(|byte| alphanumeric(*byte))) && bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
}

type FieldErrors = Vec<(RejectionReason, FieldError)>;

/// The object as a value of its kind.
fn typed(kind: Kind, name: &ObjectRef, value: &Value) -> Result<Object, FieldErrors> {
    Ok(match kind {
        Kind::Service => Object::Service(known::<k8s_openapi::api::core::v1::Service>(name, value)?.into()),
        Kind::EndpointSlice => Object::EndpointSlice(known::<k8s_openapi::api::discovery::v1::EndpointSlice>(name, value)?.into()),
        Kind::Node => Object::Node(known::<k8s_openapi::api::core::v1::Node>(name, value)?.into()),
        Kind::Namespace => Object::Namespace(known::<k8s_openapi::api::core::v1::Namespace>(name, value)?.into()),
        Kind::DaemonSet | Kind::StatefulSet if value.get("spec").is_none_or(Value::is_null) => {
            let error = FieldError { path: "spec".to_owned(), message: "is missing".to_owned() };
            return Err(vec![(RejectionReason::Malformed, error)]);
        }
        Kind::DaemonSet => Object::DaemonSet(known::<k8s_openapi::api::apps::v1::DaemonSet>(name, value)?.into()),
        Kind::StatefulSet => Object::StatefulSet(known::<k8s_openapi::api::apps::v1::StatefulSet>(name, value)?.into()),
        Kind::EricIngress => {
            let mut raw: raw::EricIngress = deserialize(value, "").map_err(malformed)?;
            settle_namespace(&mut raw.metadata, name);
            let unknown = unknown_fields(value, &raw.spec, &["apiVersion", "kind", "metadata", "spec"]);
            Object::EricIngress(checked(EricIngress::try_from(raw), unknown)?.into())
        }
        Kind::LvsIngress => {
            let mut raw: raw::LvsIngress = deserialize(value, "").map_err(malformed)?;
            settle_namespace(&mut raw.metadata, name);
            let unknown = unknown_fields(value, &raw.spec, &["apiVersion", "kind", "metadata", "spec", "status"]);
            Object::LvsIngress(checked(LvsIngress::try_from(raw), unknown)?.into())
        }
    })
}

/// An object of a kind that Kubernetes itself has.
fn known<T: DeserializeOwned + Metadata<Ty = ObjectMeta>>(name: &ObjectRef, value: &Value) -> Result<T, FieldErrors> {
    let mut object: T = deserialize(value, "").map_err(malformed)?;
    settle_namespace(object.metadata_mut(), name);
    Ok(object)
}

fn settle_namespace(metadata: &mut ObjectMeta, name: &ObjectRef) {
    metadata.namespace = name.kind.is_namespaced().then(|| name.namespace.clone());
}

fn malformed(error: FieldError) -> FieldErrors {
    vec![(RejectionReason::Malformed, error)]
}

/// An object of a kind of ours, if neither its fields nor their values are wrong.
fn checked<T>(object: Result<T, InvalidFields>, unknown: Vec<FieldError>) -> Result<T, FieldErrors> {
    let mut errors = unknown;
    let object = object.map_err(|InvalidFields(invalid)| errors.extend(invalid));
    match object {
        Ok(object) if errors.is_empty() => Ok(object),
        _ => Err(errors.into_iter().map(|error| (RejectionReason::Invalid, error)).collect()),
    }
}

fn deserialize<'de, T: Deserialize<'de>>(value: &'de Value, path: &str) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let path = match (path, below.as_str()) {
            (_, ".") => path.to_owned(),
            ("", below) => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        let hint = if path.ends_with(".port") { "; a port is 1 to 65535" } else { "" };
        FieldError { path, message: format!("{}{hint}", error.inner()) }
    })
}

/// Fields that the kind does not have, as kubectl's strict validation finds them. `spec` is what was understood of the object's `spec`.
fn unknown_fields(value: &Value, spec: &impl Serialize, top_level: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let known: Map<String, Value> = top_level.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
    compare(value, &Value::Object(known), "", &mut errors);
    if let (Some(found), Ok(known)) = (value.get("spec"), serde_json::to_value(spec)) {
        compare(found, &known, "spec", &mut errors);
    }
    errors
}

fn compare(found: &Value, known: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match (found, known) {
        (Value::Object(found), Value::Object(known)) => {
            for (field, value) in found {
                let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                if let Some(known) = known.get(field) {
                    compare(value, known, &path, errors);
                } else {
                    let hint =
                        nearest(field, known.keys().map(String::as_str)).map_or_else(String::new, |word| format!("; did you mean {word}?"));
                    errors.push(FieldError { path, message: format!("unknown field{hint}") });
                }
            }
        }
        (Value::Array(found), Value::Array(known)) => {
            for (index, (found, known)) in found.iter().zip(known).enumerate() {
                compare(found, known, &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
