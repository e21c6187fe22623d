//! The other side of the benches: receivers of deliveries and a crowd of feed clients, which cost so little that what is measured
//! is the service.
//!
//! `latchboard-loopback receive [pause_ms …]` prints a JSON array with one port for each pause (0 unless told) and answers 200 to every POST
//! after its pause, until standard input ends. `latchboard-loopback listen host:port path clients events` opens that many WebSockets, prints
//! `inside` when each has had its first frame, and when each has had all events, the 99 percentiles of the milliseconds since
//! their `"sent"`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ROOM: usize = 64 * 1024;
const AT_A_TIME: usize = 50;

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|part| part == needle)
}

/// The bytes of the first whole request in `data`, if there is one.
fn request(data: &[u8]) -> Option<usize> {
    let head = find(data, b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&data[..head])
        .ok()?
        .to_ascii_lowercase();
    let at = text.find("content-length:")? + "content-length:".len();
    let length: usize = text[at..].split("\r\n").next()?.trim().parse().ok()?;
    (data.len() >= head + length).then_some(head + length)
}

async fn answer(mut stream: TcpStream, pause: Duration) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let mut data = Vec::with_capacity(ROOM);
    let mut owed: VecDeque<Instant> = VecDeque::new();
    loop {
        let due = owed.front().copied();
        tokio::select! {
            read = stream.read_buf(&mut data) => if read? == 0 { return Ok(()) },
            () = async { match due { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {
                owed.pop_front();
                stream.write_all(ANSWER).await?;
                continue;
            }
        }
        let mut at = 0;
        while let Some(size) = request(&data[at..]) {
            at += size;
            if pause.is_zero() {
                stream.write_all(ANSWER).await?;
            } else {
                owed.push_back(Instant::now() + pause);
            }
        }
        data.drain(..at);
    }
}

async fn receive(pauses: &[u64]) -> Outcome<()> {
    let mut ports = Vec::new();
    for &pause in pauses {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        ports.push(listener.local_addr()?.port());
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(async move {
                    // A client that goes away is no fault.
                    let _ = answer(stream, Duration::from_millis(pause)).await;
                });
            }
        });
    }
    println!("{ports:?}");
    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await??;
    Ok(())
}

#[derive(Default)]
struct Crowd {
    inside: usize,
    took_ms: Vec<f64>,
}

/// The whole frames at the front of `data`: those of text are heard, and the size of all is given.
fn hear(data: &[u8], mut text: impl FnMut(&[u8])) -> usize {
    let mut at = 0;
    while data.len() >= at + 4 {
        let (mut size, mut head) = (usize::from(data[at + 1]), 2);
        if size == 126 {
            size = usize::from(u16::from_be_bytes([data[at + 2], data[at + 3]]));
            head = 4;
        }
        if data.len() < at + head + size {
            break;
        }
        if data[at] == 0x81 {
            text(&data[at + head..at + head + size]);
        }
        at += head + size;
    }
    at
}

fn sent(text: &[u8]) -> Option<f64> {
    let at = find(text, b"\"sent\":")? + 7;
    let number = text[at..].split(|byte| b",}".contains(byte)).next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

async fn ear(place: String, path: String, crowd: Rc<RefCell<Crowd>>) -> Outcome<()> {
    let mut stream = TcpStream::connect(&place).await?;
    let ask = format!(
        "GET {path} HTTP/1.1\r\nHost: {place}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await?;
    let mut data = Vec::with_capacity(ROOM);
    let mut inside = false;
    while stream.read_buf(&mut data).await? > 0 {
        if !inside {
            let Some(end) = find(&data, b"\r\n\r\n") else {
                continue;
            };
            data.drain(..end + 4);
            inside = true;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let mut crowd = crowd.borrow_mut();
        let used = hear(&data, |text| match sent(text) {
            Some(at) => crowd.took_ms.push((now - at) * 1000.0),
            None => crowd.inside += 1,
        });
        data.drain(..used);
    }
    Ok(())
}

async fn listen(place: &str, path: &str, clients: usize, events: usize) -> Outcome<()> {
    let crowd = Rc::new(RefCell::new(Crowd::default()));
    for number in 1..=clients {
        let one = ear(place.to_owned(), path.to_owned(), Rc::clone(&crowd));
        tokio::task::spawn_local(async move {
            if let Err(error) = one.await {
                eprintln!("a client: {error}");
            }
        });
        if number % AT_A_TIME == 0 {
            sleep(Duration::from_millis(100)).await;
        }
    }
    while crowd.borrow().inside < clients {
        sleep(Duration::from_millis(20)).await;
    }
    println!("inside");
    while crowd.borrow().took_ms.len() < clients * events {
        sleep(Duration::from_millis(2)).await;
    }
    let mut took = crowd.borrow().took_ms.clone();
    took.sort_by(f64::total_cmp);
    let cuts: Vec<f64> = (1..100).map(|part| took[took.len() * part / 100]).collect();
    println!("{cuts:?}");
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["receive", ref pauses @ ..] => {
                let pauses: Vec<u64> = pauses
                    .iter()
                    .map(|pause| pause.parse())
                    .collect::<Result<_, _>>()?;
                receive(if pauses.is_empty() { &[0] } else { &pauses }).await
            }
            ["listen", place, path, clients, events] => {
                listen(place, path, clients.parse()?, events.parse()?).await
            }
            _ => Err(
                "latchboard-loopback receive [pause_ms …] | listen host:port path clients events"
                    .into(),
            ),
        }
    })
}
