//! CloudFormation's intrinsic functions and conditions, as far as this project's templates use them.

use serde_json::{Map, Value};

use super::{Template, TemplateError};

/// How deep intrinsics may nest. Conditions can name each other in a circle.
const DEEPEST: usize = 64;

/// Resolves a value and everything in it. None: the value is `AWS::NoValue`, that is, absent.
pub(super) fn resolve(template: &Template, value: &Value, at: &str) -> Result<Option<Value>, TemplateError> {
    Resolver { template, at }.resolve(value, DEEPEST)
}

struct Resolver<'a> {
    template: &'a Template,
    /// Where the value stands, for errors.
    at: &'a str,
}

impl Resolver<'_> {
    fn resolve(&self, value: &Value, depth: usize) -> Result<Option<Value>, TemplateError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.malformed(value, "free of circles"));
        };
        match value {
            Value::Array(elements) => {
                let mut resolved = Vec::with_capacity(elements.len());
                for element in elements {
                    resolved.extend(self.resolve(element, depth)?);
                }
                Ok(Some(Value::Array(resolved)))
            }
            Value::Object(object) => match intrinsic(object) {
                Some((function, argument)) => self.call(function, argument, depth),
                None => {
                    let mut resolved = Map::new();
                    for (name, member) in object {
                        if let Some(member) = self.resolve(member, depth)? {
                            resolved.insert(name.clone(), member);
                        }
                    }
                    Ok(Some(Value::Object(resolved)))
                }
            },
            scalar => Ok(Some(scalar.clone())),
        }
    }

    fn call(&self, function: &str, argument: &Value, depth: usize) -> Result<Option<Value>, TemplateError> {
        match (function, argument) {
            ("Ref", Value::String(name)) => self.reference(name, depth),
            // What only a deployment can know; its name is enough for whoever reads a local run.
            ("Fn::GetAtt", Value::String(attribute)) => Ok(Some(Value::String(attribute.clone()))),
            ("Fn::GetAtt", Value::Array(parts)) => {
                let parts: Vec<_> = parts.iter().filter_map(Value::as_str).collect();
                Ok(Some(Value::String(parts.join("."))))
            }
            ("Fn::Sub", Value::String(text)) => self.substitute(text, &Map::new(), depth).map(Some),
            ("Fn::Sub", Value::Array(arguments)) => match arguments.as_slice() {
                [Value::String(text), Value::Object(variables)] => {
                    self.substitute(text, variables, depth).map(Some)
                }
                _ => Err(self.malformed(argument, "a text and a map")),
            },
            ("Fn::Join", Value::Array(arguments)) => match arguments.as_slice() {
                [Value::String(separator), list] => {
                    let list = self.resolve(list, depth)?.unwrap_or_default();
                    let texts: Option<Vec<_>> =
                        list.as_array().and_then(|elements| elements.iter().map(text_of).collect());
                    match texts {
                        Some(texts) => Ok(Some(Value::String(texts.join(separator)))),
                        None => Err(self.malformed(&list, "a list of texts")),
                    }
                }
                _ => Err(self.malformed(argument, "a separator and a list")),
            },
            ("Fn::Split", Value::Array(arguments)) => match arguments.as_slice() {
                [Value::String(separator), text] if !separator.is_empty() => {
                    let text = self.resolve(text, depth)?.unwrap_or_default();
                    let text = text.as_str().ok_or_else(|| self.malformed(&text, "a text"))?;
                    Ok(Some(text.split(separator.as_str()).collect()))
                }
                _ => Err(self.malformed(argument, "a separator and a text")),
            },
            ("Fn::Select", Value::Array(arguments)) => match arguments.as_slice() {
                [index, list] => {
                    let list = self.resolve(list, depth)?.unwrap_or_default();
                    let index = text_of(index).and_then(|index| index.parse::<usize>().ok());
                    match index.and_then(|index| list.get(index)) {
                        Some(element) => Ok(Some(element.clone())),
                        None => Err(self.malformed(&list, "a list with an element of that number")),
                    }
                }
                _ => Err(self.malformed(argument, "a number and a list")),
            },
            ("Fn::If", Value::Array(arguments)) => match arguments.as_slice() {
                [Value::String(condition), then, otherwise] => {
                    let holds = self.named_condition(condition, depth)?;
                    self.resolve(if holds { then } else { otherwise }, depth)
                }
                _ => Err(self.malformed(argument, "a condition and two values")),
            },
            _ => Err(TemplateError::Unsupported { at: self.at.to_owned(), function: function.to_owned() }),
        }
    }

    fn reference(&self, name: &str, depth: usize) -> Result<Option<Value>, TemplateError> {
        let text = |text: &str| Ok(Some(Value::String(text.to_owned())));
        match name {
            "AWS::NoValue" => return Ok(None),
            "AWS::Region" => return text("us-east-1"),
            "AWS::AccountId" => return text("000000000000"),
            "AWS::Partition" => return text("aws"),
            "AWS::StackName" => return text("local"),
            "AWS::URLSuffix" => return text("amazonaws.com"),
            _ => {}
        }
        let root = &self.template.root;
        if let Some(declaration) = root["Parameters"].get(name) {
            return self.parameter(name, declaration).map(Some);
        }
        let Some(resource) = root["Resources"].get(name) else {
            return Err(TemplateError::Missing {
                at: format!("parameter or resource {name}, which {} names", self.at),
            });
        };
        // A table is referred to by its name; the other resources' names are made up at deployment.
        match resource["Properties"].get("TableName") {
            Some(table_name) => self.resolve(table_name, depth),
            None => text(name),
        }
    }

    fn parameter(&self, name: &str, declaration: &Value) -> Result<Value, TemplateError> {
        let given = self.template.parameters.get(name);
        let value = match (given, declaration.get("Default")) {
            (Some(given), _) => Value::String(given.clone()),
            (None, Some(default)) => default.clone(),
            (None, None) => {
                return Err(TemplateError::Parameter {
                    name: name.to_owned(),
                    problem: "has no default and was not given",
                });
            }
        };
        let is_list = declaration["Type"]
            .as_str()
            .is_some_and(|it| it == "CommaDelimitedList" || it.starts_with("List<"));
        match text_of(&value) {
            Some(text) if is_list => Ok(text.split(',').map(str::trim).collect()),
            _ => Ok(value),
        }
    }

    /// `${Name}`, `${Resource.Attribute}` and `${!Literal}`.
    fn substitute(
        &self,
        text: &str,
        variables: &Map<String, Value>,
        depth: usize,
    ) -> Result<Value, TemplateError> {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, tail)) = after.split_once('}') else {
                return Err(self.malformed(&Value::String(text.to_owned()), "a text whose ${ are all closed"));
            };
            result.push_str(before);
            if let Some(literal) = name.strip_prefix('!') {
                result.push_str(&format!("${{{literal}}}"));
            } else {
                let value = match variables.get(name) {
                    Some(variable) => self.resolve(variable, depth)?,
                    None if name.contains('.') => Some(Value::String(name.to_owned())),
                    None => self.reference(name, depth)?,
                };
                match value.as_ref().and_then(text_of) {
                    Some(value) => result.push_str(&value),
                    None => {
                        return Err(self.malformed(&value.unwrap_or_default(), "a text to put into another"));
                    }
                }
            }
            rest = tail;
        }
        result.push_str(rest);
        Ok(Value::String(result))
    }

    fn named_condition(&self, name: &str, depth: usize) -> Result<bool, TemplateError> {
        match self.template.root["Conditions"].get(name) {
            Some(condition) => self.condition(condition, depth),
            None => Err(TemplateError::Missing { at: format!("Conditions.{name}") }),
        }
    }

    fn condition(&self, value: &Value, depth: usize) -> Result<bool, TemplateError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.malformed(value, "free of circles"));
        };
        let call = value.as_object().and_then(intrinsic);
        match call {
            Some(("Condition", Value::String(name))) => self.named_condition(name, depth),
            Some(("Fn::Not", Value::Array(arguments))) if arguments.len() == 1 => {
                Ok(!self.condition(&arguments[0], depth)?)
            }
            Some(("Fn::And", Value::Array(arguments))) => {
                let results: Result<Vec<_>, _> =
                    arguments.iter().map(|it| self.condition(it, depth)).collect();
                Ok(results?.into_iter().all(|holds| holds))
            }
            Some(("Fn::Or", Value::Array(arguments))) => {
                let results: Result<Vec<_>, _> =
                    arguments.iter().map(|it| self.condition(it, depth)).collect();
                Ok(results?.into_iter().any(|holds| holds))
            }
            Some(("Fn::Equals", Value::Array(arguments))) if arguments.len() == 2 => {
                let left = self.resolve(&arguments[0], depth)?.unwrap_or_default();
                let right = self.resolve(&arguments[1], depth)?.unwrap_or_default();
                // CloudFormation compares texts: 8 and "8" are equal.
                Ok(match (text_of(&left), text_of(&right)) {
                    (Some(left), Some(right)) => left == right,
                    _ => left == right,
                })
            }
            _ => Err(self.malformed(value, "a condition")),
        }
    }

    fn malformed(&self, found: &Value, expected: &'static str) -> TemplateError {
        TemplateError::Value { at: self.at.to_owned(), found: found.clone(), expected }
    }
}

/// The function and its argument, if the object is a call: one member with a function's name.
fn intrinsic(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut members = object.iter();
    let (name, argument) = members.next()?;
    let is_call = name == "Ref" || name == "Condition" || name.starts_with("Fn::");
    (is_call && members.next().is_none()).then_some((name, argument))
}

/// A scalar as CloudFormation would write it into a text.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
