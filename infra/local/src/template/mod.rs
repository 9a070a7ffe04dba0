//! What the deployed application says about its functions, read from its SAM template.
//!
//! The local run takes its settings from here, so that what runs locally is what is deployed: timeouts,
//! environment, stream mapping with its filter, schedule.
//!
//! Only what is read is resolved (`!Ref`, `!Sub`, `!If` and their like, in `intrinsics.rs`), so a template may
//! contain anything elsewhere.

mod function;
mod intrinsics;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub use function::FunctionTemplate;

use crate::filter::FilterError;

/// A SAM template with values for its parameters.
#[derive(Debug, Clone)]
pub struct Template {
    root: Value,
    parameters: BTreeMap<String, String>,
}

/// Why a template cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The file cannot be read.
    #[error("template {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// It is no YAML.
    #[error("the template is not YAML")]
    Yaml(#[source] saphyr::ScanError),
    /// Something needed is not there.
    #[error("the template has no {at}")]
    Missing {
        /// Where it should be, such as `Resources.StreamRelayFunction`.
        at: String,
    },
    /// A parameter was given that the template does not declare, or one without a default was not given.
    #[error("template parameter {name} {problem}")]
    Parameter {
        /// The parameter.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A value has the wrong form.
    #[error("the template's {at} is {found}, which is not {expected}")]
    Value {
        /// Where.
        at: String,
        /// What stands there.
        found: Value,
        /// What should.
        expected: &'static str,
    },
    /// An intrinsic function that this reader does not know.
    #[error("the template's {at} uses {function}, which is not known here")]
    Unsupported {
        /// Where.
        at: String,
        /// The function.
        function: String,
    },
    /// An event filter is malformed.
    #[error("the event filter of {at} cannot be used")]
    Filter {
        /// The event.
        at: String,
        /// What is wrong with it.
        #[source]
        source: FilterError,
    },
}

impl Template {
    /// Reads a template file.
    ///
    /// # Errors
    /// The file cannot be read, or is no YAML.
    pub fn load(path: &Path) -> Result<Self, TemplateError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TemplateError::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// The template of the workspace that this crate was compiled in.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn of_this_workspace() -> Result<Self, TemplateError> {
        Self::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml"))
    }

    /// Reads a template from its text.
    ///
    /// # Errors
    /// It is no YAML.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Ok(Self { root: yaml::to_json(text)?, parameters: BTreeMap::new() })
    }

    /// Gives a parameter a value other than its default.
    ///
    /// # Errors
    /// The template declares no such parameter.
    pub fn with_parameter(mut self, name: &str, value: impl Into<String>) -> Result<Self, TemplateError> {
        if self.root["Parameters"].get(name).is_none() {
            return Err(TemplateError::Parameter { name: name.to_owned(), problem: "is not declared" });
        }
        self.parameters.insert(name.to_owned(), value.into());
        Ok(self)
    }

    /// All of it as it was written, with intrinsic functions in their long forms.
    pub fn source(&self) -> &Value {
        &self.root
    }

    /// The resources that a deployment with these parameters has, resolved, by their logical ids.
    ///
    /// # Errors
    /// Something in one of them cannot be understood.
    pub fn resources(&self) -> Result<BTreeMap<String, Value>, TemplateError> {
        let mut resources = BTreeMap::new();
        for (logical_id, resource) in self.root["Resources"].as_object().into_iter().flatten() {
            let at = format!("Resources.{logical_id}");
            if let Some(condition) = resource["Condition"].as_str() {
                let holds = json!({"Fn::If": [condition, true, {"Ref": "AWS::NoValue"}]});
                if intrinsics::resolve(self, &holds, &at)?.is_none() {
                    continue;
                }
            }
            resources.extend(intrinsics::resolve(self, resource, &at)?.map(|it| (logical_id.clone(), it)));
        }
        Ok(resources)
    }

    /// The settings of one function, by its logical id.
    ///
    /// # Errors
    /// There is no such function, or something about it cannot be understood.
    pub fn function(&self, logical_id: &str) -> Result<FunctionTemplate, TemplateError> {
        function::read(self, logical_id)
    }
}
