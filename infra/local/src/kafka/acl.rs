//! Who may do what: entries of a broker's access control lists.

use std::time::{Duration, Instant};

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{
    ApiKey, CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::admin::{Call, refused};
use super::error::ClientError;

/// The controller has written an entry before the broker goes by it: milliseconds.
const APPLIED_BOUND: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(5);

/// What a principal wants to do. Kafka's documentation says which request needs which, on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Each of the others.
    All,
    /// Consume.
    Read,
    /// Produce. On any topic, it brings the right to be an idempotent producer.
    Write,
    /// Create a topic.
    Create,
    /// Delete a topic or records.
    Delete,
    /// Change partitions of a topic, or the cluster.
    Alter,
    /// Learn that it is there. [`Read`](Self::Read), [`Write`](Self::Write), [`Delete`](Self::Delete) and
    /// [`Alter`](Self::Alter) bring it along.
    Describe,
    /// Read its settings.
    DescribeConfigs,
    /// Change its settings.
    AlterConfigs,
    /// Be an idempotent producer; on the cluster.
    IdempotentWrite,
}

/// To what. A name of `*` is every one of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A topic.
    Topic(&'a str),
    /// A consumer group.
    Group(&'a str),
    /// A transactional producer.
    TransactionalId(&'a str),
    /// The cluster itself.
    Cluster,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Allow,
    Deny,
}

/// One entry of a list, for clients from anywhere.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) principal: &'a str,
    pub(super) permission: Permission,
    pub(super) operation: Operation,
    pub(super) resource: Resource<'a>,
}

// The numbers of Kafka's AclOperation, AclPermissionType, ResourceType and PatternType.
const ANY: i8 = 1;
const LITERAL: i8 = 3;

impl Operation {
    fn code(self) -> i8 {
        match self {
            Self::All => 2,
            Self::Read => 3,
            Self::Write => 4,
            Self::Create => 5,
            Self::Delete => 6,
            Self::Alter => 7,
            Self::Describe => 8,
            Self::DescribeConfigs => 10,
            Self::AlterConfigs => 11,
            Self::IdempotentWrite => 12,
        }
    }
}

impl Permission {
    fn code(self) -> i8 {
        match self {
            Self::Deny => 2,
            Self::Allow => 3,
        }
    }
}

impl Resource<'_> {
    fn code(&self) -> i8 {
        match self {
            Self::Topic(_) => 2,
            Self::Group(_) => 3,
            Self::Cluster => 4,
            Self::TransactionalId(_) => 5,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Topic(name) | Self::Group(name) | Self::TransactionalId(name) => name,
            Self::Cluster => "kafka-cluster",
        }
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn user(principal: &str) -> StrBytes {
    text(&format!("User:{principal}"))
}

/// Adds an entry; returns once the broker goes by it. One that is there already is left as it is.
pub(super) async fn add(servers: &str, entry: Entry<'_>) -> Result<(), ClientError> {
    let creation = AclCreation::default()
        .with_resource_type(entry.resource.code())
        .with_resource_name(text(entry.resource.name()))
        .with_resource_pattern_type(LITERAL)
        .with_principal(user(entry.principal))
        .with_host(text("*"))
        .with_operation(entry.operation.code())
        .with_permission_type(entry.permission.code());
    let call = Call { servers, what: "add an entry to the access control lists" };
    let request = CreateAclsRequest::default().with_creations(vec![creation]);
    let answer: CreateAclsResponse = call.make(ApiKey::CreateAcls, &request).await?;
    for result in answer.results {
        refused(call.what, result.error_code, result.error_message)?;
    }
    let entry = DescribeAclsRequest::default()
        .with_resource_type_filter(entry.resource.code())
        .with_resource_name_filter(Some(text(entry.resource.name())))
        .with_pattern_type_filter(LITERAL)
        .with_principal_filter(Some(user(entry.principal)))
        .with_host_filter(None)
        .with_operation(entry.operation.code())
        .with_permission_type(entry.permission.code());
    until_applied(servers, &entry, |there| there).await
}

/// Removes all entries of a principal; returns once the broker no longer goes by them.
pub(super) async fn remove_all(servers: &str, principal: &str) -> Result<(), ClientError> {
    let filter = DeleteAclsFilter::default()
        .with_resource_type_filter(ANY)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(ANY)
        .with_principal_filter(Some(user(principal)))
        .with_host_filter(None)
        .with_operation(ANY)
        .with_permission_type(ANY);
    let call = Call { servers, what: "remove entries from the access control lists" };
    let request = DeleteAclsRequest::default().with_filters(vec![filter]);
    let answer: DeleteAclsResponse = call.make(ApiKey::DeleteAcls, &request).await?;
    for result in answer.filter_results {
        refused(call.what, result.error_code, result.error_message)?;
    }
    let entries = DescribeAclsRequest::default()
        .with_resource_type_filter(ANY)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(ANY)
        .with_principal_filter(Some(user(principal)))
        .with_host_filter(None)
        .with_operation(ANY)
        .with_permission_type(ANY);
    until_applied(servers, &entries, |there| !there).await
}

/// The controller makes changes, and the broker answers this question by the lists that it goes by itself.
async fn until_applied(
    servers: &str,
    entries: &DescribeAclsRequest,
    applied: impl Fn(bool) -> bool,
) -> Result<(), ClientError> {
    let deadline = Instant::now() + APPLIED_BOUND;
    let call = Call { servers, what: "read the access control lists" };
    loop {
        let answer: DescribeAclsResponse = call.make(ApiKey::DescribeAcls, entries).await?;
        refused(call.what, answer.error_code, answer.error_message)?;
        if applied(!answer.resources.is_empty()) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(ClientError::NotApplied { bound: APPLIED_BOUND });
        }
        tokio::time::sleep(AGAIN).await;
    }
}
