//! DynamoDB's limits on items and transactions, and an item's size by its rules.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::schema::Item;

/// The largest item, in bytes.
pub(crate) const MAX_ITEM_BYTES: usize = 400 * 1024;
/// The most items of one transaction.
pub(crate) const MAX_TRANSACTION_ITEMS: usize = 100;
/// The most bytes of one transaction.
pub(crate) const MAX_TRANSACTION_BYTES: usize = 4 * 1024 * 1024;

/// An item's size: names and values. Numbers count at their largest (21 bytes), so that no item is called small that
/// DynamoDB calls large.
pub(crate) fn item_size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

/// The size of a value of the types that message items have.
fn value_size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::B(blob) => blob.as_ref().len(),
        AttributeValue::N(_) => 21,
        _ => 1,
    }
}
