//! When a publisher connects, and when it does so again.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use outbox_publisher_kafka::Connect;

use crate::support::{PLENTY, messages, publish, publisher_that};

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn has_connection(listener: &TcpListener) -> bool {
    match listener.accept() {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            false
        }
    }
}

async fn connected(listener: &TcpListener) {
    let deadline = Instant::now() + PLENTY;
    while !has_connection(listener) {
        assert!(Instant::now() < deadline, "nobody connected");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_nothing_to_publish_opens_no_connection() {
    let (patient, patients_address) = listener();
    let (eager, eagers_address) = listener();
    let patients = publisher_that(Connect::AtFirstPublish, &patients_address);
    let _eager = publisher_that(Connect::AtOnce, &eagers_address);
    // Made before the other, and given all the time the other needed.
    connected(&eager).await;
    assert!(publish(&patients, &[], PLENTY).await.is_empty());
    assert!(!has_connection(&patient), "it connected for nothing");

    publish(&patients, &messages("orders", 1, 1), Duration::from_millis(500)).await;
    connected(&patient).await;
}
