//! One function's settings, typed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::intrinsics::{resolve, text_of};
use super::{Template, TemplateError};
use crate::filter::Filter;
use crate::lambda::{FunctionSpec, RecursiveLoop};
use crate::schedule::{ScheduleRule, ScheduleSource};
use crate::stream::StreamMapping;

/// What Lambda keeps an asynchronous event for, in seconds, and the most that can be said.
const LONGEST_EVENT_AGE: u64 = 21_600;

/// What a template says about a function. What it does not say has Lambda's default.
#[derive(Debug, Clone)]
pub struct FunctionTemplate {
    /// Its logical id.
    pub logical_id: String,
    /// How long one invocation may take.
    pub timeout: Duration,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Its environment variables.
    pub variables: BTreeMap<String, String>,
    /// The most environments at once, if bounded.
    pub reserved_concurrency: Option<usize>,
    /// How often a failed asynchronous event is run again.
    pub async_retries: u32,
    /// How old an asynchronous event may be when an attempt at it begins.
    pub max_event_age: Duration,
    /// What happens when the function keeps coming back in one chain of requests.
    pub recursive_loop: RecursiveLoop,
    /// The streams that invoke it, by event name.
    pub streams: BTreeMap<String, StreamMapping>,
    /// The schedules that invoke it, by event name.
    pub schedules: BTreeMap<String, ScheduleRule>,
}

impl FunctionTemplate {
    /// The function as the host runs it, from this binary. Retries of asynchronous events wait 1 s and 2 s
    /// here, not Lambda's one and two minutes.
    pub fn spec(&self, binary: &Path) -> FunctionSpec {
        let spec = FunctionSpec::new(&self.logical_id, binary)
            .with_timeout(self.timeout)
            .with_memory_mib(self.memory_mib)
            .with_variables(self.variables.clone())
            .with_async_retries(self.async_retries, Duration::from_secs(1))
            .with_max_event_age(self.max_event_age)
            .with_recursive_loop(self.recursive_loop);
        match self.reserved_concurrency {
            Some(environments) => spec.with_reserved_concurrency(environments),
            None => spec,
        }
    }
}

pub(super) fn read(template: &Template, logical_id: &str) -> Result<FunctionTemplate, TemplateError> {
    let at = format!("Resources.{logical_id}");
    let resource = &template.root["Resources"][logical_id];
    if resource["Type"] != "AWS::Serverless::Function" {
        return Err(TemplateError::Missing { at: format!("function {at}") });
    }
    let properties = Reader { template, at: format!("{at}.Properties"), value: &resource["Properties"] };
    let globals =
        Reader { template, at: "Globals.Function".to_owned(), value: &template.root["Globals"]["Function"] };
    let number = |name: &str| Ok(properties.number(name)?.or(globals.number(name)?));
    let asynchronous = properties.member("EventInvokeConfig");
    let asynchronous_of_all = globals.member("EventInvokeConfig");
    let asynchronous_number =
        |name: &str| Ok(asynchronous.number(name)?.or(asynchronous_of_all.number(name)?));

    let mut variables = globals.variables()?;
    variables.extend(properties.variables()?);
    let events = properties.member("Events");
    let mut streams = BTreeMap::new();
    let mut schedules = BTreeMap::new();
    for name in events.value.as_object().into_iter().flat_map(|events| events.keys()) {
        let event = events.member(name);
        let properties = event.member("Properties");
        let source = match event.value["Type"].as_str() {
            Some("DynamoDB") => {
                streams.insert(name.clone(), stream(&properties)?);
                continue;
            }
            Some("ScheduleV2") => ScheduleSource::Scheduler,
            Some("Schedule") => ScheduleSource::Rule,
            _ => continue,
        };
        schedules.insert(name.clone(), schedule(&properties, name, source)?);
    }
    Ok(FunctionTemplate {
        logical_id: logical_id.to_owned(),
        timeout: Duration::from_secs(number("Timeout")?.unwrap_or(3)),
        memory_mib: properties.fitting(number("MemorySize")?.unwrap_or(128), "MemorySize")?,
        variables,
        reserved_concurrency: match number("ReservedConcurrentExecutions")? {
            Some(environments) => Some(properties.fitting(environments, "ReservedConcurrentExecutions")?),
            None => None,
        },
        async_retries: {
            let retries = asynchronous_number("MaximumRetryAttempts")?.unwrap_or(2);
            asynchronous.within(retries, "MaximumRetryAttempts", 0..=2, "a number from 0 to 2")?
        },
        max_event_age: {
            let name = "MaximumEventAgeInSeconds";
            let seconds = asynchronous_number(name)?.unwrap_or(LONGEST_EVENT_AGE);
            let seconds: u32 =
                asynchronous.within(seconds, name, 60..=LONGEST_EVENT_AGE, "a number from 60 to 21600")?;
            Duration::from_secs(seconds.into())
        },
        recursive_loop: match properties.text("RecursiveLoop")?.or(globals.text("RecursiveLoop")?).as_deref()
        {
            Some("Allow") => RecursiveLoop::Allow,
            Some("Terminate") | None => RecursiveLoop::Terminate,
            found => return Err(properties.malformed("RecursiveLoop", found.into(), "Allow or Terminate")),
        },
        streams,
        schedules,
    })
}

fn stream(properties: &Reader<'_>) -> Result<StreamMapping, TemplateError> {
    let mut mapping = StreamMapping::default();
    if let Some(size) = properties.number("BatchSize")? {
        mapping.batch_size = properties.fitting(size, "BatchSize")?;
    }
    if let Some(seconds) = properties.number("MaximumBatchingWindowInSeconds")? {
        mapping.batching_window = Duration::from_secs(seconds);
    }
    // -1 is the template's word for no limit, as is silence.
    let attempts = properties.resolved("MaximumRetryAttempts")?;
    if attempts.as_ref().and_then(text_of).as_deref() != Some("-1")
        && let Some(attempts) = properties.number("MaximumRetryAttempts")?
    {
        mapping.maximum_retry_attempts = Some(properties.fitting(attempts, "MaximumRetryAttempts")?);
    }
    mapping.from_horizon = match properties.text("StartingPosition")?.as_deref() {
        Some("TRIM_HORIZON") => true,
        Some("LATEST") => false,
        found => {
            return Err(properties.malformed("StartingPosition", found.into(), "TRIM_HORIZON or LATEST"));
        }
    };
    let response_types = properties.resolved("FunctionResponseTypes")?.unwrap_or_default();
    mapping.reports_item_failures =
        response_types.as_array().is_some_and(|types| types.iter().any(|it| it == "ReportBatchItemFailures"));
    let criteria = properties.resolved("FilterCriteria")?.unwrap_or_default();
    let patterns: Vec<&str> = match criteria["Filters"].as_array() {
        Some(filters) => filters.iter().filter_map(|filter| filter["Pattern"].as_str()).collect(),
        None => Vec::new(),
    };
    // A filter that is not understood must not turn into no filter.
    if patterns.len() != criteria["Filters"].as_array().map_or(0, Vec::len)
        || (!criteria.is_null() && patterns.is_empty())
    {
        return Err(properties.malformed(
            "FilterCriteria",
            criteria,
            "a list of filters with a pattern each",
        ));
    }
    mapping.filter = Filter::parse(&patterns)
        .map_err(|source| TemplateError::Filter { at: properties.at.clone(), source })?;
    Ok(mapping)
}

fn schedule(
    properties: &Reader<'_>,
    event: &str,
    source: ScheduleSource,
) -> Result<ScheduleRule, TemplateError> {
    let expression = match source {
        ScheduleSource::Scheduler => "ScheduleExpression",
        ScheduleSource::Rule => "Schedule",
    };
    let missing = || TemplateError::Missing { at: format!("{}.{expression}", properties.at) };
    Ok(ScheduleRule {
        name: properties.text("Name")?.unwrap_or_else(|| event.to_owned()),
        source,
        expression: properties.text(expression)?.ok_or_else(missing)?,
        input: properties.text("Input")?,
    })
}

/// A place in the template, with readers for what stands there.
struct Reader<'a> {
    template: &'a Template,
    at: String,
    value: &'a Value,
}

impl<'a> Reader<'a> {
    fn member(&self, name: &str) -> Reader<'a> {
        Reader { template: self.template, at: format!("{}.{name}", self.at), value: &self.value[name] }
    }

    fn resolved(&self, name: &str) -> Result<Option<Value>, TemplateError> {
        match self.value.get(name) {
            Some(value) => resolve(self.template, value, &format!("{}.{name}", self.at)),
            None => Ok(None),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, TemplateError> {
        match self.resolved(name)? {
            Some(value) => match text_of(&value) {
                Some(text) => Ok(Some(text)),
                None => Err(self.malformed(name, value, "a text")),
            },
            None => Ok(None),
        }
    }

    fn number(&self, name: &str) -> Result<Option<u64>, TemplateError> {
        match self.text(name)? {
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.malformed(name, text.into(), "a whole number from 0")),
            },
            None => Ok(None),
        }
    }

    fn fitting<T: TryFrom<u64>>(&self, number: u64, name: &str) -> Result<T, TemplateError> {
        T::try_from(number).map_err(|_| self.malformed(name, number.into(), "a number of that size"))
    }

    fn within<T: TryFrom<u64>>(
        &self,
        number: u64,
        name: &str,
        range: RangeInclusive<u64>,
        expected: &'static str,
    ) -> Result<T, TemplateError> {
        if range.contains(&number) {
            self.fitting(number, name)
        } else {
            Err(self.malformed(name, number.into(), expected))
        }
    }

    fn variables(&self) -> Result<BTreeMap<String, String>, TemplateError> {
        let environment = self.member("Environment");
        let resolved = environment.resolved("Variables")?.unwrap_or_default();
        let mut variables = BTreeMap::new();
        for (name, value) in resolved.as_object().into_iter().flatten() {
            match text_of(value) {
                Some(text) => variables.insert(name.clone(), text),
                None => return Err(environment.malformed(name, value.clone(), "a text")),
            };
        }
        Ok(variables)
    }

    fn malformed(&self, name: &str, found: Value, expected: &'static str) -> TemplateError {
        TemplateError::Value { at: format!("{}.{name}", self.at), found, expected }
    }
}
