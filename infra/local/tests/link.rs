//! The link, with real sockets: what arrives, what does not, and what each side is told.

#![allow(clippy::unwrap_used, reason = "tests state what must hold by panicking")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox_local::link::{Link, Mode};

/// Everything that is to happen happens within this.
const BOUND: Duration = Duration::from_secs(10);
/// What has not come by then does not come.
const QUIET: Duration = Duration::from_millis(150);

/// A server that sends back what it receives; it ends with its listener's process.
struct Echo {
    address: SocketAddr,
    received: Arc<AtomicUsize>,
    /// Connections whose client was seen to close, in whatever way.
    closed: Arc<AtomicUsize>,
}

fn echo() -> Echo {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let echo =
        Echo { address: listener.local_addr().unwrap(), received: Arc::default(), closed: Arc::default() };
    let (received, closed) = (Arc::clone(&echo.received), Arc::clone(&echo.closed));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (received, closed) = (Arc::clone(&received), Arc::clone(&closed));
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    received.fetch_add(length, Ordering::SeqCst);
                    if stream.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
                closed.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    echo
}

fn start(echo: &Echo) -> Link {
    Link::start(echo.address).unwrap()
}

fn connect(link: &Link) -> TcpStream {
    let stream = TcpStream::connect(link.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream
}

/// Sends and awaits the echo.
fn ask(stream: &mut TcpStream, words: &str) -> io::Result<()> {
    stream.write_all(words.as_bytes())?;
    answer(stream, words)
}

fn answer(stream: &mut TcpStream, words: &str) -> io::Result<()> {
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer, words.as_bytes());
    Ok(())
}

/// No byte, no end and no error: as far as this side can tell, the other one is thinking.
fn assert_quiet(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(QUIET)).unwrap();
    let read = stream.read(&mut [0; 1]);
    stream.set_read_timeout(Some(BOUND)).unwrap();
    assert!(matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock), "{read:?}");
}

fn assert_reset(stream: &mut TcpStream) {
    let read = stream.read(&mut [0; 1]);
    assert!(matches!(&read, Err(error) if error.kind() == ErrorKind::ConnectionReset), "{read:?}");
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn everything_passes_and_is_counted() {
    let echo = echo();
    let link = start(&echo);
    assert_eq!((link.target(), link.mode()), (echo.address, Mode::Pass));
    let (mut one, mut two) = (connect(&link), connect(&link));
    ask(&mut one, "four").unwrap();
    ask(&mut two, "seven..").unwrap();
    let bytes = || (link.counters().to_target, link.counters().to_client);
    // A byte may be read before the link has counted it.
    until("all are counted", || bytes() == (11, 11));
    assert_eq!((link.opened(), link.open()), (2, 2));

    // A half that is closed is closed on the other side, and the other half goes on.
    one.write_all(b"last").unwrap();
    one.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    one.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "last");
    until("the closed one is noticed", || link.open() == 1);
    assert_eq!(link.counters().reset, 0);
}

#[test]
fn a_delay_keeps_order_and_bandwidth() {
    let delay = Duration::from_millis(60);
    let echo = echo();
    let link = start(&echo);
    let mut stream = connect(&link);
    ask(&mut stream, "quick").unwrap();
    link.set(Mode::Delay(delay));
    let start = Instant::now();
    ask(&mut stream, "slow").unwrap();
    assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());

    // 8 MB are 256 reads of the link's and a thousand of small ones: with a pause for each this would take a minute.
    let mut sending = stream.try_clone().unwrap();
    let bytes: Vec<u8> = (0..8_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let sent = bytes.clone();
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        for small in sent[..4_000].chunks(4) {
            sending.write_all(small).unwrap();
        }
        sending.write_all(&sent[4_000..]).unwrap();
    });
    let mut received = vec![0; bytes.len()];
    stream.read_exact(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == bytes, "changed on the way");
    println!("8 MB there and back in {:?}", start.elapsed());
    assert!(start.elapsed() >= 2 * delay && start.elapsed() < BOUND, "{:?}", start.elapsed());

    // What is on its way does not have to wait for a time that no longer applies.
    link.set(Mode::Delay(Duration::from_secs(3600)));
    stream.write_all(b"soon").unwrap();
    assert_quiet(&mut stream);
    link.set(Mode::Pass);
    answer(&mut stream, "soon").unwrap();
}

#[test]
fn silence_swallows_and_what_was_in_it_stays_dead() {
    let echo = echo();
    let link = start(&echo);
    let mut old = connect(&link);
    ask(&mut old, "before").unwrap();
    link.set(Mode::Silent);
    old.write_all(b"swallowed").unwrap();
    let mut silenced = connect(&link);
    silenced.write_all(b"too").unwrap();
    until("both were read", || link.counters().swallowed == 12);
    assert_eq!(echo.received.load(Ordering::SeqCst), 6);
    assert_quiet(&mut old);
    assert_quiet(&mut silenced);

    link.set(Mode::Pass);
    ask(&mut connect(&link), "after").unwrap();
    for dead in [&mut old, &mut silenced] {
        dead.write_all(b"again").unwrap();
        assert_quiet(dead);
    }
    assert_eq!(echo.received.load(Ordering::SeqCst), 11);
    assert_eq!(link.counters().forgotten, 2);
}

#[test]
fn forgotten_connections_tell_neither_side_and_new_ones_pass() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let link = Link::start(server.local_addr().unwrap()).unwrap();
    let pair = || {
        let client = connect(&link);
        let (target, _) = server.accept().unwrap();
        target.set_read_timeout(Some(BOUND)).unwrap();
        (client, target)
    };
    let ((mut one, mut target_of_one), (two, mut target_of_two)) = (pair(), pair());
    link.strand();
    one.write_all(b"lost").unwrap();
    target_of_one.write_all(b"lost too").unwrap();
    until("both were read", || link.counters().swallowed == 12);
    assert_quiet(&mut one);
    assert_quiet(&mut target_of_one);

    // One side goes, and the other hears nothing of it.
    assert_eq!(link.open(), 2);
    drop((two, target_of_one));
    until("the client's close is noticed", || link.open() == 1);
    assert_quiet(&mut one);
    assert_quiet(&mut target_of_two);
    // Nor does it hear of a reset: there is no way that one could come.
    link.reset();
    assert_quiet(&mut one);

    let (mut new, mut target_of_new) = pair();
    new.write_all(b"x").unwrap();
    target_of_new.read_exact(&mut [0; 1]).unwrap();
    assert_eq!(link.counters().forgotten, 2);
}

#[test]
fn a_reset_reaches_both_sides_and_new_ones_pass() {
    let echo = echo();
    let link = start(&echo);
    let mut stream = connect(&link);
    ask(&mut stream, "before").unwrap();
    link.reset();
    assert_reset(&mut stream);
    until("the target is told", || echo.closed.load(Ordering::SeqCst) == 1);
    until("it is counted", || link.counters().reset == 1 && link.open() == 0);
    ask(&mut connect(&link), "after").unwrap();
}

#[test]
fn a_refusing_link_refuses_and_comes_back_on_its_port() {
    let echo = echo();
    let link = start(&echo);
    let mut stream = connect(&link);
    ask(&mut stream, "before").unwrap();
    for _ in 0..3 {
        link.set(Mode::Refuse);
        let refused = TcpStream::connect(link.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        link.set(Mode::Pass);
        ask(&mut connect(&link), "after").unwrap();
    }
    assert_reset(&mut stream);
}

#[test]
fn what_is_held_back_comes_later_and_in_order() {
    let echo = echo();
    let link = start(&echo);
    let mut old = connect(&link);
    ask(&mut old, "before").unwrap();
    link.set(Mode::Hold);
    old.write_all(b"one ").unwrap();
    let mut new = connect(&link);
    new.write_all(b"of the new one").unwrap();
    let mut given_up = connect(&link);
    given_up.write_all(b"its client has gone").unwrap();
    drop(given_up);
    old.write_all(b"two").unwrap();
    assert_quiet(&mut old);
    assert_quiet(&mut new);
    assert_eq!(echo.received.load(Ordering::SeqCst), 6);

    link.set(Mode::Pass);
    answer(&mut old, "one two").unwrap();
    answer(&mut new, "of the new one").unwrap();
    until("the late one lands", || echo.received.load(Ordering::SeqCst) == 6 + 7 + 14 + 19);
}

#[test]
fn what_is_held_back_is_bounded() {
    let held = hold_all_that_is_taken(Mode::Hold);
    let clogged = hold_all_that_is_taken(Mode::Clog);
    // The link's own queue makes the difference.
    assert!(clogged + (1 << 20) < held, "{clogged} of {held}");
}

/// Sends until no more is taken, and sees it all arrive; returns how much it was.
fn hold_all_that_is_taken(mode: Mode) -> usize {
    let echo = echo();
    let link = start(&echo);
    let mut stream = connect(&link);
    ask(&mut stream, "before").unwrap();
    link.set(mode);
    stream.set_write_timeout(Some(QUIET)).unwrap();
    let chunk = vec![7; 64 * 1024];
    let mut sent = 0;
    while let Ok(length) = stream.write(&chunk) {
        sent += length;
        // The kernel's buffers are in it too.
        assert!(sent < 64 << 20, "nothing holds the sender back");
    }
    assert_eq!(echo.received.load(Ordering::SeqCst), 6);
    link.set(Mode::Pass);
    let mut reading = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || reading.read_exact(&mut vec![0; sent]).unwrap());
    reader.join().unwrap();
    assert_eq!(echo.received.load(Ordering::SeqCst), 6 + sent);
    sent
}

#[test]
fn too_many_connections_are_turned_away_and_counted() {
    let echo = echo();
    let link = start(&echo);
    link.set(Mode::Hold);
    let mut held: Vec<_> = (0..256).map(|_| connect(&link)).collect();
    until("they are all there", || link.open() == 256);
    assert_reset(&mut connect(&link));
    assert_eq!((link.counters().turned_away, link.opened()), (1, 256));
    link.set(Mode::Pass);
    held.truncate(1);
    until("there is room", || link.open() == 1);
    ask(&mut connect(&link), "in").unwrap();
}

/// An order that only met the connections which the link has looked at would miss some of these.
#[test]
fn an_order_meets_connections_that_were_just_made() {
    let echo = echo();
    let link = start(&echo);
    for round in 0..200 {
        let mut stream = connect(&link);
        stream.write_all(b"x").unwrap();
        match round % 2 {
            0 => link.strand(),
            _ => link.reset(),
        }
        let before = echo.received.load(Ordering::SeqCst);
        if stream.write_all(b"late").is_ok() && round % 2 == 0 {
            until("it is swallowed", || link.counters().swallowed >= (round / 2 + 1) * 4);
        } else {
            assert!(ask(&mut stream, "late").is_err());
        }
        // The first byte may have passed before the order.
        assert!(echo.received.load(Ordering::SeqCst) <= before + 1, "round {round}");
    }
}

#[test]
fn an_absent_target_resets_and_is_found_when_it_is_there() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap();
    drop(target);
    let link = Link::start(address).unwrap();
    assert_reset(&mut connect(&link));
    let target = TcpListener::bind(address).unwrap();
    let mut client = connect(&link);
    let (mut accepted, _) = target.accept().unwrap();
    accepted.write_all(b"x").unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
}

#[test]
fn dropping_it_ends_everything() {
    let echo = echo();
    let link = start(&echo);
    let address = link.address();
    let mut streams = [connect(&link), connect(&link)];
    ask(&mut streams[0], "before").unwrap();
    link.strand();
    let mut live = connect(&link);
    ask(&mut live, "before").unwrap();
    drop(link);
    for stream in streams.iter_mut().chain([&mut live]) {
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
        let ended =
            stream.take_error().unwrap().is_none_or(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(ended);
    }
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    until("the target is told", || echo.closed.load(Ordering::SeqCst) == 3);
}
