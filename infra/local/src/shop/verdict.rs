//! What a run proved: pure arithmetic over what was placed and what was delivered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::MessageId;

/// An order that was committed, with its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedOrder {
    /// The message's id.
    pub message: MessageId,
    /// The topic that it must arrive in.
    pub topic: Arc<str>,
    /// Whose order it is; the record's key, if it has one, says the same.
    pub customer: u32,
    /// The customer's orders are numbered from 1, in the order of their commits.
    pub number: u32,
    /// The record's key, as it must arrive. Without one there is no order to be kept.
    pub key: Option<Vec<u8>>,
    /// The record's value, as it must arrive.
    pub value: Vec<u8>,
    /// When the transaction was known to be committed.
    pub committed: Instant,
}

/// A record that was consumed. In a list of them, those of one topic and partition are in the partition's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// From its id header; `None` when there is none that can be read.
    pub message: Option<MessageId>,
    /// The topic it came from.
    pub topic: Arc<str>,
    /// The partition it came from.
    pub partition: i32,
    /// Where in the partition.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// When the consumer had it.
    pub received: Instant,
}

/// A customer whose orders did not arrive as they were committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfOrder {
    /// The customer.
    pub customer: u32,
    /// The order that had arrived.
    pub earlier: u32,
    /// The lower-numbered order that arrived, for the first time, after it.
    pub later: u32,
    /// The message of the latter.
    pub message: MessageId,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// Committed orders.
    pub placed: usize,
    /// Records consumed, duplicates included.
    pub records: usize,
    /// Records of a message that had arrived before.
    pub duplicates: usize,
    /// Messages that were committed and never arrived.
    pub lost: Vec<MessageId>,
    /// Records whose id is none of the placed orders'.
    pub strangers: usize,
    /// Records whose topic, key or value is not what was placed.
    pub altered: usize,
    /// First deliveries that came too late for their customer.
    pub out_of_order: Vec<OutOfOrder>,
    /// Customers whose orders came through more than one partition.
    pub scattered: Vec<u32>,
    /// From commit to consumer, of first deliveries; `None` when nothing arrived.
    pub latency: Option<Latency>,
}

/// From commit to consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Half of the orders were faster.
    pub median: Duration,
    /// 99 of 100 were no slower.
    pub p99: Duration,
    /// The slowest.
    pub largest: Duration,
}

impl Verdict {
    /// Whether every order arrived unaltered and, the first time, in its customer's order. Duplicates are allowed:
    /// at least once is the promise.
    pub fn holds(&self) -> bool {
        self.lost.is_empty() && self.strangers == 0 && self.altered == 0 && self.order_kept()
    }

    /// Whether first deliveries kept each customer's order.
    pub fn order_kept(&self) -> bool {
        self.out_of_order.is_empty() && self.scattered.is_empty()
    }
}

/// Compares what was placed with what was delivered.
pub fn judge(placed: &[PlacedOrder], deliveries: &[Delivery]) -> Verdict {
    let orders: HashMap<MessageId, &PlacedOrder> =
        placed.iter().map(|order| (order.message, order)).collect();
    let mut verdict = Verdict { placed: placed.len(), records: deliveries.len(), ..Verdict::default() };
    let mut seen = BTreeSet::new();
    // Kafka keeps an order within a partition, so it is one of a customer and a topic.
    let mut newest: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    let mut partitions: BTreeMap<(u32, &str), BTreeSet<i32>> = BTreeMap::new();
    let mut latencies = Vec::with_capacity(placed.len());
    for delivery in deliveries {
        let Some(order) = delivery.message.and_then(|id| orders.get(&id)) else {
            verdict.strangers += 1;
            continue;
        };
        let unaltered = delivery.topic == order.topic
            && delivery.key == order.key
            && delivery.value.as_ref() == Some(&order.value);
        verdict.altered += usize::from(!unaltered);
        let line = (order.customer, &*delivery.topic);
        if order.key.is_some() {
            partitions.entry(line).or_default().insert(delivery.partition);
        }
        if !seen.insert(order.message) {
            verdict.duplicates += 1;
            continue;
        }
        // The consumer may have it before the writer has heard of its own commit.
        latencies.push(delivery.received.saturating_duration_since(order.committed));
        if order.key.is_none() {
            continue;
        }
        let newest = newest.entry(line).or_default();
        if order.number < *newest {
            let (customer, earlier, later) = (order.customer, *newest, order.number);
            verdict.out_of_order.push(OutOfOrder { customer, earlier, later, message: order.message });
        }
        *newest = order.number.max(*newest);
    }
    verdict.lost = placed.iter().map(|order| order.message).filter(|id| !seen.contains(id)).collect();
    verdict.scattered = partitions
        .into_iter()
        .filter(|(_, partitions)| partitions.len() > 1)
        .map(|((customer, _), _)| customer)
        .collect();
    verdict.latency = latency(latencies);
    verdict
}

fn latency(mut all: Vec<Duration>) -> Option<Latency> {
    all.sort_unstable();
    let largest = *all.last()?;
    // Nearest rank: the smallest value that so many percent do not exceed.
    let rank = |percent: usize| all.get((all.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    Some(Latency { median: rank(50)?, p99: rank(99)?, largest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(customer: u32, number: u32) -> MessageId {
        MessageId::from_uuid(Uuid::from_u128(u128::from(customer) << 32 | u128::from(number)))
    }

    fn order(customer: u32, number: u32, committed: Instant) -> PlacedOrder {
        let (key, value) = (vec![u8::try_from(customer).unwrap()], vec![u8::try_from(number).unwrap()]);
        let topic = "orders".into();
        PlacedOrder {
            message: id(customer, number),
            topic,
            customer,
            number,
            key: Some(key),
            value,
            committed,
        }
    }

    /// The record of an order, received `ms` after its commit.
    fn record(order: &PlacedOrder, ms: u64) -> Delivery {
        Delivery {
            message: Some(order.message),
            topic: order.topic.clone(),
            partition: 0,
            offset: 0,
            key: order.key.clone(),
            value: Some(order.value.clone()),
            received: order.committed + Duration::from_millis(ms),
        }
    }

    /// Two customers with three orders each.
    fn placed() -> Vec<PlacedOrder> {
        let now = Instant::now();
        (1..=3).flat_map(|number| [order(0, number, now), order(1, number, now)]).collect()
    }

    #[test]
    fn a_run_in_order_holds() {
        let placed = placed();
        let deliveries: Vec<_> = placed.iter().map(|order| record(order, 5)).collect();
        let verdict = judge(&placed, &deliveries);
        assert!(verdict.holds());
        assert_eq!((verdict.placed, verdict.records, verdict.duplicates), (6, 6, 0));
    }

    #[test]
    fn orders_of_different_customers_may_pass_each_other() {
        let placed = placed();
        let mut deliveries: Vec<_> = placed.iter().map(|order| record(order, 5)).collect();
        deliveries.sort_by_key(|delivery| delivery.key.clone());
        assert!(judge(&placed, &deliveries).holds());
    }

    #[test]
    fn what_never_arrives_is_lost_and_no_disorder() {
        let placed = placed();
        let deliveries: Vec<_> = placed.iter().skip(1).map(|order| record(order, 5)).collect();
        let verdict = judge(&placed, &deliveries);
        assert_eq!(verdict.lost, [id(0, 1)]);
        assert!(verdict.order_kept() && !verdict.holds());
    }

    #[test]
    fn a_republished_tail_is_duplicates_and_no_disorder() {
        let placed = placed();
        let deliveries: Vec<_> = placed.iter().chain(&placed[2..]).map(|order| record(order, 5)).collect();
        let verdict = judge(&placed, &deliveries);
        assert_eq!((verdict.records, verdict.duplicates), (10, 4));
        assert!(verdict.holds());
    }

    #[test]
    fn a_first_delivery_behind_a_later_order_is_disorder() {
        let placed = placed();
        // Customer 0 gets 1, 3, 2, and then 3 again.
        let deliveries: Vec<_> = [0, 4, 2, 4, 1, 3, 5].map(|at: usize| record(&placed[at], 5)).to_vec();
        let verdict = judge(&placed, &deliveries);
        assert_eq!(
            verdict.out_of_order,
            [OutOfOrder { customer: 0, earlier: 3, later: 2, message: id(0, 2) }]
        );
        assert_eq!(verdict.duplicates, 1);
        assert!(verdict.lost.is_empty() && !verdict.holds());
    }

    #[test]
    fn a_customer_in_two_partitions_has_no_order() {
        let placed = placed();
        let mut deliveries: Vec<_> = placed.iter().map(|order| record(order, 5)).collect();
        deliveries[2].partition = 1;
        let verdict = judge(&placed, &deliveries);
        assert_eq!(verdict.scattered, [0]);
        assert!(!verdict.holds());
    }

    #[test]
    fn without_a_key_there_is_no_order_and_no_partition_to_keep() {
        let placed: Vec<_> = placed().into_iter().map(|order| PlacedOrder { key: None, ..order }).collect();
        let mut deliveries: Vec<_> = placed.iter().rev().map(|order| record(order, 5)).collect();
        deliveries[0].partition = 1;
        let verdict = judge(&placed, &deliveries);
        assert!(verdict.holds(), "{verdict:?}");
        deliveries[1].key = Some(b"key".to_vec());
        assert_eq!(judge(&placed, &deliveries).altered, 1);
    }

    #[test]
    fn each_topic_has_an_order_of_its_own() {
        let now = Instant::now();
        let topic = |number| if number % 2 == 0 { "even" } else { "odd" };
        let order = |number| PlacedOrder { topic: topic(number).into(), ..order(0, number, now) };
        let placed: Vec<_> = (1..=4).map(order).collect();
        let deliver = |numbers: [usize; 4]| {
            numbers.map(|number| {
                let partition = i32::from(number % 2 == 0);
                Delivery { partition, ..record(&placed[number - 1], 5) }
            })
        };
        assert!(judge(&placed, &deliver([2, 4, 1, 3])).holds());
        assert_eq!(judge(&placed, &deliver([2, 3, 4, 1])).out_of_order.len(), 1);
        let mut elsewhere = deliver([1, 2, 3, 4]);
        elsewhere[0].topic = "even".into();
        assert_eq!(judge(&placed, &elsewhere).altered, 1);
    }

    #[test]
    fn strangers_and_changed_bytes_are_told_apart() {
        let placed = placed();
        let mut deliveries: Vec<_> = placed.iter().map(|order| record(order, 5)).collect();
        deliveries[0].value = Some(b"other".to_vec());
        deliveries[1].key = None;
        deliveries.push(Delivery { message: None, ..deliveries[2].clone() });
        deliveries.push(Delivery { message: Some(id(9, 9)), ..deliveries[2].clone() });
        let verdict = judge(&placed, &deliveries);
        assert_eq!((verdict.altered, verdict.strangers), (2, 2));
        assert!(verdict.lost.is_empty() && !verdict.holds());
    }

    #[test]
    fn nothing_at_all_has_no_latency_and_loses_nothing() {
        let verdict = judge(&[], &[]);
        assert!(verdict.holds());
        assert_eq!(verdict.latency, None);
    }

    #[test]
    fn latency_is_by_nearest_rank_and_of_first_deliveries() {
        let now = Instant::now();
        let placed: Vec<_> = (1..=200).map(|number| order(0, number, now)).collect();
        let mut deliveries: Vec<_> = placed.iter().zip(1..).map(|(order, ms)| record(order, ms)).collect();
        deliveries.push(record(&placed[0], 100_000));
        let ms = Duration::from_millis;
        let expected = Latency { median: ms(100), p99: ms(198), largest: ms(200) };
        assert_eq!(judge(&placed, &deliveries).latency, Some(expected));
        // The consumer was faster than the commit's answer.
        let early = Delivery { received: now, ..record(&order(0, 1, now + ms(5)), 0) };
        let late = [order(0, 1, now + ms(5))];
        assert_eq!(judge(&late, &[early]).latency.map(|latency| latency.median), Some(Duration::ZERO));
    }
}
