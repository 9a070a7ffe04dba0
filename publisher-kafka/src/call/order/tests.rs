use outbox::{Chance, Ticks};

use super::*;

use PublishErrorKind::{MayHaveHappened, Rejected, Unavailable};

/// Messages with these keys; a blank: none.
fn messages(keys: &str) -> Vec<Message> {
    let chance = Chance::seeded(1);
    let message = |key: char| {
        let message = Message::new(chance.message_id(Ticks::from_raw(639_316_345_534_567_890)), "orders");
        if key == ' ' { message } else { message.with_key(key.to_string()) }
    };
    keys.chars().map(message).collect()
}

fn order_of<'a>(batch: &'a [&'a Message], one_at_a_time: bool) -> Order<'a> {
    let mut order = Order::new(batch);
    order.pace(|_| one_at_a_time);
    order
}

/// Sends whatever may be sent now.
fn send_all(order: &mut Order<'_>) -> Vec<usize> {
    let mut sent = Vec::new();
    while let Next::Send(index) = order.next() {
        order.sent(index);
        sent.push(index);
    }
    sent
}

fn error(kind: PublishErrorKind) -> PublishError {
    PublishError::new(kind, "a test's")
}

/// `None`: acknowledged.
fn kinds(order: Order<'_>) -> Vec<Option<PublishErrorKind>> {
    let kind = |outcome| match outcome {
        Outcome::Acknowledged => None,
        Outcome::Failed(error) => Some(PublishError::kind(&error)),
    };
    order.outcomes().into_iter().map(kind).collect()
}

#[test]
fn everything_goes_at_once_in_order() {
    let messages = messages("aba b");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = order_of(&batch, false);
    assert_eq!(send_all(&mut order), [0, 1, 2, 3, 4]);
    assert_eq!(order.next(), Next::Wait);
    for index in 0..5 {
        order.acknowledged(index);
    }
    assert_eq!(order.next(), Next::End);
    assert_eq!(kinds(order), vec![None; 5]);
}

#[test]
fn a_message_that_finds_no_room_stays_the_next() {
    let messages = messages("ab");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = order_of(&batch, false);
    assert_eq!(order.next(), Next::Send(0));
    assert_eq!(order.next(), Next::Send(0), "it was not sent");
}

#[test]
fn what_is_behind_a_failure_of_its_key_is_not_sent() {
    let messages = messages("aba b");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = order_of(&batch, false);
    order.sent(0);
    order.came_back(0, error(Rejected));
    assert_eq!(send_all(&mut order), [1, 3, 4]);
    for index in [1, 3, 4] {
        order.acknowledged(index);
    }
    assert_eq!(order.next(), Next::End);
    assert_eq!(kinds(order), [Some(Rejected), None, Some(Unavailable), None, None]);
}

#[test]
fn one_at_a_time_the_next_of_a_key_goes_when_the_one_before_is_acknowledged() {
    let messages = messages("aab aab ");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = order_of(&batch, true);
    assert_eq!(send_all(&mut order), [0, 2, 3, 7], "each key's first, and what has none");
    order.acknowledged(2);
    assert_eq!(send_all(&mut order), [6]);
    order.acknowledged(0);
    assert_eq!(send_all(&mut order), [1]);
    assert_eq!(order.next(), Next::Wait);
    order.acknowledged(1);
    assert_eq!(send_all(&mut order), [4]);
    order.acknowledged(4);
    assert_eq!(send_all(&mut order), [5]);
    for index in [3, 5, 6, 7] {
        order.acknowledged(index);
    }
    assert_eq!(order.next(), Next::End);
    assert_eq!(kinds(order), vec![None; 8]);
}

#[test]
fn one_at_a_time_nothing_of_a_key_goes_behind_a_refusal() {
    let messages = messages("aaab");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = order_of(&batch, true);
    assert_eq!(send_all(&mut order), [0, 3]);
    // Refused with its batch: again alone, and only then what is behind it.
    assert!(order.again_alone(0));
    assert_eq!(order.next(), Next::Wait);
    order.acknowledged(3);
    assert_eq!(send_all(&mut order), [0]);
    assert!(!order.again_alone(0), "it was alone");
    order.came_back(0, error(Rejected));
    assert_eq!(order.next(), Next::End);
    assert_eq!(kinds(order), [Some(Rejected), Some(Unavailable), Some(Unavailable), None]);
}

#[test]
fn only_the_keys_of_paced_messages_are_paced() {
    let mut messages = messages("aabb");
    messages[1].topic = "small".to_owned();
    let batch: Vec<_> = messages.iter().collect();
    let mut order = Order::new(&batch);
    order.pace(|message| message.topic == "small");
    assert_eq!(send_all(&mut order), [0, 2, 3]);
}

#[test]
fn a_refused_batch_goes_again_one_by_one_with_what_is_behind_it() {
    let messages = messages("aab b");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = order_of(&batch, false);
    for index in 0..2 {
        order.sent(index);
    }
    assert!(order.again_alone(0) && order.again_alone(1));
    assert_eq!(send_all(&mut order), [2, 3, 4], "other keys go on");
    assert_eq!(order.next(), Next::Wait, "until those are known");
    for index in 2..5 {
        order.acknowledged(index);
    }
    for index in 0..2 {
        assert_eq!(order.next(), Next::Send(index));
        order.sent(index);
        assert_eq!(order.next(), Next::Wait, "alone");
        order.acknowledged(index);
    }
    assert_eq!(order.next(), Next::End);
}

#[test]
fn what_can_be_known_is_refused_first() {
    let messages = messages("abab a");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = Order::new(&batch);
    let second = messages[2].id;
    order.refuse(|message| (message.id == second).then(|| error(Rejected)));
    order.pace(|_| true);
    assert_eq!(order.waiting().count(), 4);
    assert_eq!(send_all(&mut order), [0, 1, 4], "what is ahead of it goes");
    for index in [0, 1, 4] {
        order.acknowledged(index);
    }
    assert_eq!(send_all(&mut order), [3]);
    order.acknowledged(3);
    assert_eq!(kinds(order), [None, None, Some(Rejected), None, None, Some(Unavailable)]);
}

#[test]
fn what_was_taken_back_may_have_happened_and_the_rest_did_not() {
    let messages = messages("abab");
    let batch: Vec<_> = messages.iter().collect();
    let mut order = order_of(&batch, true);
    assert_eq!(send_all(&mut order), [0, 1]);
    order.acknowledged(0);
    order.taken_back(1);
    assert!(order.was_taken_back());
    assert_eq!(order.outstanding(), 0);
    let kind = |taken_back| if taken_back { MayHaveHappened } else { Unavailable };
    assert_eq!(order.give_up(|_, taken_back| error(kind(taken_back))), (1, 2));
    assert_eq!(kinds(order), [None, Some(MayHaveHappened), Some(Unavailable), Some(Unavailable)]);
}
