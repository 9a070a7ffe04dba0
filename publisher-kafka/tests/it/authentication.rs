//! Each way to prove who the publisher is, on real brokers that want it; and what is said when they do not believe it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use outbox::{Clock, Outcome, PublishErrorKind, Publisher, Settings, SystemClock, Ticks, TokioClock};
use outbox_local::kafka::{
    Broker, BrokerError, BrokerOptions, Reader, SUPER_USER, Security, unsecured_token,
};
use outbox_local::link::Mode;
use outbox_publisher_kafka::{
    Connect, Credential, CredentialError, CredentialSource, KafkaConfig, KafkaPublisher,
};
use tokio::sync::OnceCell;

use crate::support::{PLENTY, assert_all_acknowledged, chain, failure, messages, publish, read};

/// What a publish of a function with the shortest timeout, 10 s, has.
const LIMIT: Duration = Duration::from_secs(6);

/// One broker for the tests of a kind, which end with this process; each test has a topic of its own.
static TLS: OnceCell<Option<Broker>> = OnceCell::const_new();
static SCRAM: OnceCell<Option<Broker>> = OnceCell::const_new();
static OAUTH_BEARER: OnceCell<Option<Broker>> = OnceCell::const_new();

/// `None`, said aloud: there is no broker of our own.
async fn broker(security: Security) -> Option<&'static Broker> {
    let cell = match security {
        Security::Tls => &TLS,
        Security::Scram => &SCRAM,
        Security::OauthBearer => &OAUTH_BEARER,
        Security::Plaintext => unreachable!("no test of these"),
    };
    let start = async || {
        let options = BrokerOptions { bootstrap_servers: None, ..BrokerOptions::from_env().unwrap() };
        match Broker::start(BrokerOptions { security, behind_link: true, ..options }).await {
            Err(error @ (BrokerError::NoSecurity { .. } | BrokerError::NoLink { .. })) => {
                println!("skipped: {error}");
                None
            }
            started => Some(started.unwrap()),
        }
    };
    cell.get_or_init(start).await.as_ref()
}

/// Gives what it is told to give, and counts how often it was asked.
#[derive(Debug)]
struct Source {
    credential: Mutex<Credential>,
    asked: AtomicUsize,
}

impl Source {
    fn of(credential: Option<Credential>) -> Arc<Self> {
        Arc::new(Self { credential: Mutex::new(credential.unwrap()), asked: AtomicUsize::new(0) })
    }

    fn give(&self, credential: Option<Credential>) {
        *self.credential.lock().unwrap() = credential.unwrap();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl CredentialSource for Source {
    fn what(&self) -> String {
        "the credential of the test".to_owned()
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let credential = self.credential.lock().unwrap().clone();
        Box::pin(async { Ok(credential) })
    }
}

/// A token that a broker takes for `life`, and that the publisher is told to live for `said`.
fn token(life: Duration, said: Duration) -> Option<Credential> {
    let token = unsecured_token(SUPER_USER, SystemTime::now(), life);
    Credential::token(token.token, token.principal_name, said)
}

fn config(servers: &str, more: &[(&str, &str)]) -> KafkaConfig {
    let servers = [("KAFKA_BOOTSTRAP_SERVERS", servers)];
    KafkaConfig::from_settings(&mut Settings::new(servers.into_iter().chain(more.iter().copied()))).unwrap()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// The CA of a broker, as the setting names it.
fn ca(broker: &Broker) -> &str {
    broker.ca_file().unwrap().to_str().unwrap()
}

/// Publishes, and reads what was published back as the administrator.
async fn publishes(broker: &Broker, publisher: &KafkaPublisher, topic: &str) {
    broker.create_topic(topic, 2).await.unwrap();
    let batch = messages(topic, 50, 5);
    assert_all_acknowledged(&publish(publisher, &batch, PLENTY).await);
    let reader = Reader::open(broker.bootstrap_servers(), topic).await.unwrap();
    assert_eq!(read(&reader, 50).await.len(), 50);
    assert_eq!(publisher.in_flight(), 0);
}

/// A publish that ends within its limit, in an error with all of `parts` and no secret.
async fn fails(publisher: &KafkaPublisher, kind: PublishErrorKind, parts: &[&str]) {
    let started = Instant::now();
    let outcomes = publish(publisher, &messages("orders", 3, 3), LIMIT).await;
    assert!(started.elapsed() <= LIMIT + Duration::from_millis(200), "{:?}", started.elapsed());
    for outcome in &outcomes {
        assert!(matches!(outcome, Outcome::Failed(_)));
        let (error, text) = (failure(outcome), chain(failure(outcome)));
        for part in parts {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert_eq!(error.kind(), kind, "{text}");
        assert!(!text.contains(WRONG), "{text}");
    }
    assert_eq!(publisher.in_flight(), 0);
}

const WRONG: &str = "hunter2";
const MISCONFIGURED: PublishErrorKind = PublishErrorKind::Misconfigured;

/// Nothing listens there: what is tried is whether the client can be made, with what is compiled into it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_be_made_for_every_way() {
    let address = "127.0.0.1:1";
    KafkaPublisher::new(config(address, &[("KAFKA_AUTH", "tls")]), Connect::AtOnce, clock()).unwrap();
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let settings =
            [("KAFKA_AUTH", "scram"), ("KAFKA_SECRET_ID", "s"), ("KAFKA_SCRAM_MECHANISM", mechanism)];
        let source = Source::of(Credential::login("relay", WRONG));
        let config = config(address, &settings);
        let publisher =
            KafkaPublisher::with_credentials(config, source.clone(), Connect::AtOnce, clock()).await.unwrap();
        assert_eq!(source.asked(), 1, "it is there from the start");
        fails(&publisher, PublishErrorKind::Unavailable, &["Connection refused", address]).await;
    }
    let source = Source::of(token(LIMIT, LIMIT));
    let config = config(address, &[("KAFKA_AUTH", "iam")]);
    let publisher = KafkaPublisher::with_credentials(config, source, Connect::AtOnce, clock()).await.unwrap();
    // It connects only with a token: by that it has asked for one, and has got it.
    fails(&publisher, PublishErrorKind::Unavailable, &["Connection refused", address]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_credentials_must_fit() {
    let config = config("127.0.0.1:1", &[("KAFKA_AUTH", "iam")]);
    let error = KafkaPublisher::new(config.clone(), Connect::AtOnce, clock()).unwrap_err().to_string();
    assert!(error.contains("KAFKA_AUTH=iam"), "{error}");
    let source = Source::of(Credential::login("relay", WRONG));
    let publisher = KafkaPublisher::with_credentials(config, source, Connect::AtOnce, clock()).await.unwrap();
    fails(&publisher, MISCONFIGURED, &["cannot prove to Kafka who it is", "KAFKA_AUTH=iam"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_only_look_like_some_are_named() {
    let pem = "-----BEGIN CERTIFICATE-----\nMIIBCgKCAQEA\n-----END CERTIFICATE-----";
    let settings = [("KAFKA_AUTH", "tls"), ("KAFKA_CA_PEM", pem)];
    let made = |connect| KafkaPublisher::new(config("127.0.0.1:1", &settings), connect, clock());
    let error = made(Connect::AtOnce).unwrap_err().to_string();
    assert_eq!(error, "the Kafka client does not take KAFKA_CA_PEM");
    let publisher = made(Connect::AtFirstPublish).unwrap();
    fails(&publisher, MISCONFIGURED, &["does not take KAFKA_CA_PEM", "ssl.ca.pem"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_private_ca() {
    let Some(broker) = broker(Security::Tls).await else { return };
    let (servers, tls) = (broker.secure_servers().unwrap(), ("KAFKA_AUTH", "tls"));
    let file = config(servers, &[tls, ("KAFKA_CA_FILE", ca(broker))]);
    publishes(broker, &KafkaPublisher::new(file, Connect::AtOnce, clock()).unwrap(), "by-file").await;
    let pem = std::fs::read_to_string(ca(broker)).unwrap().replace('\n', "\\n");
    let text = config(servers, &[tls, ("KAFKA_CA_PEM", &pem)]);
    publishes(broker, &KafkaPublisher::new(text, Connect::AtFirstPublish, clock()).unwrap(), "by-text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_is_not_the_brokers_is_named() {
    let Some(broker) = broker(Security::Tls).await else { return };
    let servers = broker.secure_servers().unwrap();
    let public = config(servers, &[("KAFKA_AUTH", "tls")]);
    match KafkaPublisher::new(public, Connect::AtOnce, clock()) {
        Ok(publisher) => {
            fails(&publisher, MISCONFIGURED, &["certificate", "KAFKA_AUTH=tls", "KAFKA_CA_FILE", servers])
                .await;
        }
        // A machine without public CAs.
        Err(error) => assert!(error.to_string().contains("KAFKA_CA_FILE"), "{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_of_another_listener_is_told_from_a_broker_that_is_away() {
    let Some(broker) = broker(Security::Tls).await else { return };
    let unavailable = PublishErrorKind::Unavailable;
    let plaintext = config(broker.secure_servers().unwrap(), &[]);
    let publisher = KafkaPublisher::new(plaintext, Connect::AtOnce, clock()).unwrap();
    fails(&publisher, unavailable, &["KAFKA_AUTH=plaintext", "port of another listener"]).await;
    let tls = config(broker.bootstrap_servers(), &[("KAFKA_AUTH", "tls"), ("KAFKA_CA_FILE", ca(broker))]);
    let publisher = KafkaPublisher::new(tls, Connect::AtOnce, clock()).unwrap();
    fails(&publisher, unavailable, &["KAFKA_AUTH=tls", "port of another listener"]).await;

    // A broker that wants to know who asks answers one question first.
    let Some(proving) = self::broker(Security::Scram).await else { return };
    let tls =
        config(proving.secure_servers().unwrap(), &[("KAFKA_AUTH", "tls"), ("KAFKA_CA_FILE", ca(proving))]);
    let publisher = KafkaPublisher::new(tls, Connect::AtOnce, clock()).unwrap();
    fails(&publisher, unavailable, &["KAFKA_AUTH=tls", "port of another listener"]).await;
    // And one that does not refuses the proof, every time.
    let settings = [("KAFKA_AUTH", "scram"), ("KAFKA_SECRET_ID", "s"), ("KAFKA_CA_FILE", ca(broker))];
    let (config, source) =
        (config(broker.secure_servers().unwrap(), &settings), Source::of(Credential::login("relay", WRONG)));
    let publisher = KafkaPublisher::with_credentials(config, source, Connect::AtOnce, clock()).await.unwrap();
    fails(&publisher, MISCONFIGURED, &["KAFKA_AUTH=scram", "port of another listener"]).await;
}

/// Two round trips of the proof are too slow, at one step of it or the other: nobody has refused anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_is_slow_while_it_proves_who_it_is_is_no_refusal() {
    let Some(broker) = broker(Security::Scram).await else { return };
    let (servers, link) = (broker.linked_servers().unwrap(), broker.link().unwrap());
    let settings = [("KAFKA_AUTH", "scram"), ("KAFKA_SECRET_ID", "s"), ("KAFKA_CA_FILE", ca(broker))];
    let (user, password) = broker.credentials().unwrap();
    for delay in [500, 600, 800].map(Duration::from_millis) {
        link.set(Mode::Delay(delay));
        let source = Source::of(Credential::login(user, password));
        let made =
            KafkaPublisher::with_credentials(config(servers, &settings), source, Connect::AtOnce, clock());
        let publisher = made.await.unwrap();
        let outcomes = publish(&publisher, &messages("orders", 3, 3), LIMIT).await;
        for outcome in &outcomes {
            let (error, text) = (failure(outcome), chain(failure(outcome)));
            println!("{delay:?}: {text}");
            assert!(!text.contains("refused") && !text.contains("another listener"), "{delay:?}: {text}");
            assert_eq!(error.kind(), PublishErrorKind::Unavailable, "{delay:?}: {text}");
        }
    }
    link.set(Mode::Pass);
}

/// Something that was obtained a while ago is refused: it may have been renewed since, so nobody is blamed until the new
/// one is refused too.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_good_once_and_is_refused_is_obtained_again_before_anybody_is_blamed() {
    let Some(broker) = broker(Security::OauthBearer).await else { return };
    let config =
        config(broker.secure_servers().unwrap(), &[("KAFKA_AUTH", "iam"), ("KAFKA_CA_FILE", ca(broker))]);
    let (hour, short) = (Duration::from_hours(1), Duration::from_secs(10));
    // Taken for new for a minute, and for good for two.
    let source = Source::of(token(short, Duration::from_mins(3)));
    let clock = Arc::new(TokioClock::starting_at(Ticks::from_system_time(SystemTime::now())));
    let made = KafkaPublisher::with_credentials(config, source.clone(), Connect::AtOnce, clock.clone());
    let publisher = made.await.unwrap();
    publishes(broker, &publisher, "until-it-ended").await;
    source.give(token(hour, hour));
    // Used all the time, so that it is kept, until the broker has ended the connection with its token: by the publisher's
    // clock that was obtained long ago.
    let (bound, mut stepped) = (Instant::now() + 3 * short, 0);
    let outcomes = loop {
        assert!(Instant::now() < bound, "the broker takes the token for ever");
        if stepped < 80 {
            clock.step_wall(10_000);
            stepped += 10;
        }
        let outcomes = publish(&publisher, &messages("until-it-ended", 3, 3), LIMIT).await;
        if outcomes.iter().all(|outcome| matches!(outcome, Outcome::Failed(_))) {
            break outcomes;
        }
        assert_all_acknowledged(&outcomes);
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    for outcome in &outcomes {
        let (error, text) = (failure(outcome), chain(failure(outcome)));
        assert_ne!(error.kind(), MISCONFIGURED, "{text}");
        assert!(text.contains("obtained again"), "{text}");
    }
    publishes(broker, &publisher, "after-it-ended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scram_by_a_password_that_is_wrong_and_then_right() {
    let Some(broker) = broker(Security::Scram).await else { return };
    let servers = broker.secure_servers().unwrap();
    let settings =
        [("KAFKA_AUTH", "scram"), ("KAFKA_SECRET_ID", "relays-secret"), ("KAFKA_CA_FILE", ca(broker))];
    let (user, password) = broker.credentials().unwrap();
    let source = Source::of(Credential::login(user, WRONG));
    let made = KafkaPublisher::with_credentials(
        config(servers, &settings),
        source.clone(),
        Connect::AtFirstPublish,
        clock(),
    );
    let publisher = made.await.unwrap();
    assert_eq!(source.asked(), 0);
    for asked in [1, 2] {
        fails(&publisher, MISCONFIGURED, &["refused", "KAFKA_SECRET_ID=relays-secret", servers]).await;
        assert_eq!(source.asked(), asked, "what was refused is not used again");
    }
    source.give(Credential::login(user, password));
    publishes(broker, &publisher, "scram").await;
    publishes(broker, &publisher, "scram-again").await;
    assert_eq!(source.asked(), 3);

    let [auth, secret, ca] = settings;
    let settings = [auth, secret, ca, ("KAFKA_SCRAM_MECHANISM", "SCRAM-SHA-256")];
    let config = config(servers, &settings);
    let publisher = KafkaPublisher::with_credentials(config, source, Connect::AtOnce, clock()).await.unwrap();
    fails(&publisher, MISCONFIGURED, &["do not offer KAFKA_SCRAM_MECHANISM=SCRAM-SHA-256"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_taken_and_one_that_is_over_is_refused_by_name() {
    let Some(broker) = broker(Security::OauthBearer).await else { return };
    let config =
        config(broker.secure_servers().unwrap(), &[("KAFKA_AUTH", "iam"), ("KAFKA_CA_FILE", ca(broker))]);
    // Over by what the broker goes by, and not by what the publisher was told.
    let hour = Duration::from_hours(1);
    let over = unsecured_token(SUPER_USER, SystemTime::now() - 2 * hour, hour);
    let source = Source::of(Credential::token(over.token, over.principal_name, hour));
    let made = KafkaPublisher::with_credentials(config, source.clone(), Connect::AtOnce, clock());
    let publisher = made.await.unwrap();
    fails(&publisher, MISCONFIGURED, &["refused the IAM token", "KAFKA_AUTH=iam", "kafka-cluster:Connect"])
        .await;

    source.give(token(hour, hour));
    publishes(broker, &publisher, "token").await;
    assert_eq!(source.asked(), 2);
}

/// A freeze that stops the monotonic clock, as the publisher's own clock tells of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ran_out_in_a_freeze_is_replaced_before_the_first_send() {
    let Some(broker) = broker(Security::OauthBearer).await else { return };
    let (servers, link) = (broker.linked_servers().unwrap(), broker.link().unwrap());
    let config = config(servers, &[("KAFKA_AUTH", "iam"), ("KAFKA_CA_FILE", ca(broker))]);
    let (hour, minute) = (Duration::from_hours(1), Duration::from_mins(1));
    let source = Source::of(token(hour, minute));
    let clock = Arc::new(TokioClock::starting_at(Ticks::from_system_time(SystemTime::now())));
    let made = KafkaPublisher::with_credentials(config, source.clone(), Connect::AtOnce, clock.clone());
    let publisher = made.await.unwrap();
    publishes(broker, &publisher, "before").await;
    assert_eq!(source.asked(), 1);

    // A third of its life, and a little: a new one is kept, and the connections are as they were.
    let opened = link.opened();
    clock.step_wall(22_000);
    publishes(broker, &publisher, "a-third-over").await;
    assert_eq!((source.asked(), link.opened()), (2, opened));

    // What the client has is over by now, whatever is kept: were its connections lost, it would show that.
    clock.step_wall(22_000);
    publishes(broker, &publisher, "all-over").await;
    assert_eq!(source.asked(), 3);
    assert!(link.opened() > opened, "the client was kept, with a token that is over");
}
