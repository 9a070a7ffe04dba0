//! What becomes of messages while the stack is updated, fails to be updated, and is deleted.

use outbox::{Message, MessageIds};

use crate::load::{Load, assert_complete_and_in_order};
use crate::messages::{compare, count_of_bucket, read};
use crate::ministack::MiniStack;
use crate::{Ground, STACK, SWEEP_BOUND, TABLE, TOPIC};

/// Before and after whatever is done, a writer gets so much through.
const SOME: usize = 20;

/// Both functions, with another batch size: their processes are replaced while they are at work.
pub(crate) async fn an_update_loses_nothing(ground: &Ground) {
    let mut load = Load::start(ground);
    load.goes_on_for(SOME).await;
    let changed = [("ScheduleExpression", "rate(1 minute)"), ("BatchSize", "50")];
    ground.deploy(&changed).await.succeeded();
    load.goes_on_for(SOME).await;
    all_has_arrived(ground, load).await;
    assert_eq!(ground.ministack.stack_status(STACK).await, "UPDATE_COMPLETE");
    assert_eq!(batch_sizes(&ground.ministack).await, ["50", "50"]);
}

/// The functions are updated already when something beside them fails, and are put back.
pub(crate) async fn an_update_that_fails_is_rolled_back_and_loses_nothing(ground: &Ground) {
    let mut load = Load::start(ground);
    load.goes_on_for(SOME).await;
    let broken = ground.ministack.build_with_a_resource_that_never_comes();
    let changed = [("ScheduleExpression", "rate(1 minute)"), ("BatchSize", "20")];
    let parameters = crate::parameters(&ground.ministack, &ground.broker, &changed);
    let said = ground.ministack.deploy(STACK, &parameters, Some(broken.path())).await.failed();
    assert!(said.contains("NeverComes"), "the user is told which resource it was: {said}");
    load.goes_on_for(SOME).await;
    all_has_arrived(ground, load).await;
    assert_eq!(ground.ministack.stack_status(STACK).await, "UPDATE_ROLLBACK_COMPLETE");
    assert_eq!(batch_sizes(&ground.ministack).await, ["50", "50"]);
}

/// The functions go, and the table stays with what nobody has published; a stack that is made for that table goes on.
pub(crate) async fn a_stack_that_is_deleted_leaves_its_messages_to_another(ground: &Ground) {
    ground.ministack.delete(STACK).await.succeeded();
    assert_eq!(ground.ministack.stack_status(STACK).await, "gone");
    assert!(ground.ministack.functions().await.is_empty());
    let message = Message::new(MessageIds::from_system().next_id(), TOPIC).with_key("21").with_value("kept");
    ground.writer().enqueue(std::slice::from_ref(&message)).await.unwrap();
    assert_eq!(count_of_bucket(&ground.client, &ground.options, &message).await, 1, "of {TABLE}");

    let table = ground.client.describe_table().table_name(TABLE).send().await.unwrap().table.unwrap();
    let stream = table.latest_stream_arn().unwrap();
    let existing = [("ExistingTableName", TABLE), ("ExistingTableStreamArn", stream)];
    ground.deploy(&existing).await.succeeded();
    let records = read(&ground.reader, 1, SWEEP_BOUND).await;
    compare(&records, &[message]);
    ground.wait_until_empty().await;
}

async fn all_has_arrived(ground: &Ground, load: Load) {
    let written = load.end().await;
    ground.wait_until_empty().await;
    let records = ground.reader.rest().await.unwrap();
    assert_complete_and_in_order(&records, &written);
}

/// What the functions run with.
async fn batch_sizes(ministack: &MiniStack) -> Vec<String> {
    let functions = ministack.functions().await;
    functions.iter().map(|function| function["OUTBOX_BATCH_SIZE"].as_str().unwrap().to_owned()).collect()
}
