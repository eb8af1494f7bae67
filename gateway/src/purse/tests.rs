//! What passes a purse, whatever the pieces it comes in.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
/// DATA whose payload looks like a flood.
const DATA: [u8; 13] = [0, 0, 4, 0, 0, 0, 0, 0, 1, 6, 6, 6, 6];

fn pair() -> (Purse<DuplexStream>, DuplexStream) {
    let (near, far) = duplex(1024 * 1024);
    (Purse::of_client(near, Counter::noop()), far)
}

/// What is read of `said`, by reads of so many bytes.
async fn reads(said: &[u8], piece: usize) -> Vec<u8> {
    let (mut purse, mut far) = pair();
    far.write_all(said).await.unwrap();
    far.shutdown().await.unwrap();
    let mut came = Vec::new();
    let mut buffer = vec![0; piece];
    loop {
        let length = purse.read(&mut buffer).await.unwrap();
        if length == 0 {
            return came;
        }
        came.extend_from_slice(&buffer[..length]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_purse_can_pay_for_passes_byte_for_byte() {
    let frames = [&PING[..], &DATA].concat().repeat(usize::try_from(PURSE).unwrap());
    let said = [&PREFACE[..], &frames].concat();
    for piece in [1, 7, 9, 17, 4096, 1024 * 1024] {
        assert_eq!(reads(&said, piece).await, said, "{piece}");
    }
}

#[tokio::test(start_paused = true)]
async fn behind_the_frame_that_was_too_much_a_head_comes_that_never_ends() {
    let paid = usize::try_from(PURSE).unwrap() + 1;
    let said = [&PREFACE[..], &PING.repeat(paid * 3)].concat();
    let passes = [&PREFACE[..], &PING.repeat(paid), ENDLESS_HEAD].concat();
    for piece in [1, 7, 9, 17, 4096, 1024 * 1024] {
        let came = reads(&said, piece).await;
        assert!(came == passes, "{piece}: {} of {}", came.len(), passes.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_purse_is_filled_by_time_and_by_what_is_written() {
    let (mut purse, mut far) = pair();
    let per_second = usize::try_from(FILLS_BY).unwrap();
    let written = usize::try_from(BYTES_FOR_ONE).unwrap() * per_second;
    far.write_all(PREFACE).await.unwrap();
    far.write_all(&PING.repeat(usize::try_from(PURSE).unwrap())).await.unwrap();
    let (mut came, mut seen) = (vec![0; 64 * 1024], 0);
    let all = PREFACE.len() + PING.len() * usize::try_from(PURSE).unwrap();
    while seen < all {
        seen += purse.read(&mut came).await.unwrap();
    }
    for round in 0..20 {
        if round % 2 == 0 {
            tokio::time::advance(Duration::from_secs(1)).await;
        } else {
            purse.write_all(&vec![0; written]).await.unwrap();
        }
        let frames = PING.repeat(per_second);
        far.write_all(&frames).await.unwrap();
        let mut passed = vec![0; frames.len()];
        purse.read_exact(&mut passed).await.unwrap();
        assert!(passed == frames && !purse.is_empty(), "{round}");
    }
    far.write_all(&PING.repeat(2)).await.unwrap();
    let mut passed = vec![0; PING.len()];
    purse.read_exact(&mut passed).await.unwrap();
    assert!(purse.is_empty());
}
