//! The ways to name a function in a request.

use std::fmt;

use super::answer::Refusal;
use crate::lambda::FunctionSpec;
use crate::lambda::spec::ACCOUNT;

const LONGEST_NAME: usize = 64;
const LONGEST_ARN: usize = 170;
/// The only version there is here.
const LATEST: &str = "$LATEST";

/// A function's name, `name`, `account:function:name` or `arn:aws:lambda:region:account:function:name`, each
/// perhaps with `:version` or `:alias` behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FunctionName {
    region: Option<String>,
    account: Option<String>,
    name: String,
    qualifier: Option<String>,
}

impl FunctionName {
    /// Reads a name and the qualifier that was given beside it.
    pub(super) fn read(text: &str, qualifier: Option<String>) -> Result<Self, Refusal> {
        let Some(mut name) = Self::parse(text) else {
            return Err(Refusal::validation("functionName", text, "the name or ARN of a function"));
        };
        match (&name.qualifier, qualifier) {
            (Some(in_name), Some(beside)) if *in_name != beside => {
                return Err(Refusal::validation("qualifier", &beside, "the one in the function's name"));
            }
            (_, Some(beside)) => name.qualifier = Some(beside),
            (_, None) => {}
        }
        Ok(name)
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split(':').collect();
        let (place, rest) = match parts.as_slice() {
            ["arn", partition, "lambda", region, account, "function", rest @ ..]
                if partition.starts_with("aws") =>
            {
                (Some((Some(*region), *account)), rest)
            }
            [account, "function", rest @ ..] if is_account(account) => (Some((None, *account)), rest),
            rest => (None, rest),
        };
        let (name, qualifier) = match rest {
            [name] => (*name, None),
            [name, qualifier] => (*name, Some(*qualifier)),
            _ => return None,
        };
        let fits = text.len() <= LONGEST_ARN
            && (1..=LONGEST_NAME).contains(&name.len())
            && name.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it))
            && qualifier.is_none_or(is_qualifier)
            && place.is_none_or(|(_, account)| is_account(account));
        fits.then(|| Self {
            region: place.and_then(|(region, _)| region).map(str::to_owned),
            account: place.map(|(_, account)| account.to_owned()),
            name: name.to_owned(),
            qualifier: qualifier.map(str::to_owned),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether this names that function: nothing that is said contradicts it.
    pub(super) fn is(&self, spec: &FunctionSpec) -> bool {
        self.name == spec.name
            && self.region.as_ref().is_none_or(|region| *region == spec.region)
            && self.account.as_ref().is_none_or(|account| account == ACCOUNT)
            && self.qualifier.as_ref().is_none_or(|qualifier| qualifier == LATEST)
    }
}

/// As much of the ARN as is known.
impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(region) = &self.region {
            write!(f, "arn:aws:lambda:{region}:")?;
        }
        if let Some(account) = &self.account {
            write!(f, "{account}:function:")?;
        }
        f.write_str(&self.name)?;
        match &self.qualifier {
            Some(qualifier) => write!(f, ":{qualifier}"),
            None => Ok(()),
        }
    }
}

fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|it| it.is_ascii_digit())
}

fn is_qualifier(text: &str) -> bool {
    let known = |it: char| it.is_ascii_alphanumeric() || "-_".contains(it);
    text == LATEST || (!text.is_empty() && text.chars().all(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_the_function() {
        let spec = FunctionSpec::new("relay", "/bin/true");
        for form in ["relay", "000000000000:function:relay", &spec.arn()] {
            for text in [form.to_owned(), format!("{form}:$LATEST")] {
                let name = FunctionName::read(&text, None).unwrap();
                assert!(name.is(&spec), "{text}");
                assert_eq!(name.to_string(), text);
                assert!(FunctionName::read(&text, Some(LATEST.to_owned())).unwrap().is(&spec), "{text}");
            }
        }
    }

    #[test]
    fn another_function_version_place_or_account_is_another_one() {
        let spec = FunctionSpec::new("relay", "/bin/true");
        for text in [
            "other",
            "relay:live",
            "relay:3",
            "111111111111:function:relay",
            "arn:aws:lambda:eu-central-1:000000000000:function:relay",
            "arn:aws:lambda:us-east-1:111111111111:function:relay",
        ] {
            let name = FunctionName::read(text, None).unwrap();
            assert!(!name.is(&spec), "{text}");
            assert_eq!(name.to_string(), text);
        }
        assert!(!FunctionName::read("relay", Some("live".to_owned())).unwrap().is(&spec));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            ":",
            "relay:",
            "relay:a b",
            "re lay",
            "relay:1:2",
            "0:function:relay",
            "arn:aws:lambda:us-east-1:0:function:relay",
            "arn:aws:sqs:us-east-1:000000000000:function:relay",
            "arn:aws:lambda:us-east-1:000000000000:layer:relay",
            &"x".repeat(LONGEST_NAME + 1),
        ] {
            let refusal = FunctionName::read(text, None).unwrap_err();
            assert!(refusal.to_string().contains("functionName"), "{text}: {refusal}");
        }
        let refusal = FunctionName::read("relay:1", Some("2".to_owned())).unwrap_err();
        assert!(refusal.to_string().contains("qualifier"), "{refusal}");
    }
}
