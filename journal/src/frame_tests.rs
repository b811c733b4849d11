#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use proptest::prelude::*;

use super::*;

fn sample() -> Record<'static> {
    Record {
        schema: 3,
        continues: false,
        stream: "door-7",
        sequence: 12,
        version: 4,
        at_micros: 1_700_000_000_000_001,
        epoch: 9,
        trace: Some(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
                .parse()
                .unwrap(),
        ),
        previous: ChainHash::of(b"before"),
        payload: b"opened",
        commit: 10,
    }
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_record(record, &mut out);
    out
}

#[test]
fn a_record_round_trips_and_hash_excludes_the_commit() {
    let record = sample();
    let bytes = encoded(&record);
    assert_eq!(bytes.len(), record_bytes(6, 6));
    let frame = decode(&bytes).unwrap();
    assert_eq!(frame.entry, Entry::Record(record));
    let other = encoded(&Record {
        commit: 11,
        ..record
    });
    assert_ne!(other, bytes);
    assert_eq!(decode(&other).unwrap().hash, frame.hash);
}

#[test]
fn a_gap_round_trips() {
    let gap = Gap {
        first: 3,
        last: 900,
        hash: ChainHash::of(b"x"),
    };
    let mut bytes = Vec::new();
    encode_gap(&gap, &mut bytes);
    let frame = decode(&bytes).unwrap();
    assert_eq!((frame.entry, frame.hash), (Entry::Gap(gap), gap.hash));
}

#[test]
fn every_flipped_bit_and_every_truncation_is_an_error() {
    let bytes = encoded(&sample());
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        assert!(decode(&damaged).is_err(), "bit {at}");
    }
    for length in 0..bytes.len() {
        assert_eq!(
            decode(&bytes[..length]),
            Err(FrameError::Incomplete),
            "length {length}"
        );
    }
}

#[test]
fn a_newer_version_is_told_apart_from_damage() {
    let mut bytes = encoded(&sample());
    bytes.truncate(bytes.len() - 4);
    bytes[8] = 2;
    seal(&mut bytes, 0);
    assert_eq!(decode(&bytes), Err(FrameError::Version(2)));
}

#[test]
fn invalid_fields_under_a_right_checksum_are_named() {
    let cases: [(usize, u8, &str); 5] = [
        (10, 0xff, "flags"),
        (16, 0, "sequence"),
        (75, 1, "trace context"),
        (108, 200, "payload length"),
        (112, 7, "stream"),
    ];
    for (offset, value, field) in cases {
        let mut bytes = encoded(&sample());
        bytes.truncate(bytes.len() - 4);
        bytes[offset] = value;
        seal(&mut bytes, 0);
        match decode(&bytes) {
            Err(FrameError::Field(found)) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_to_something_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut framed = RECORD_MAGIC.to_vec();
        framed.extend_from_slice(&u32::try_from(bytes.len() + 12).unwrap().to_le_bytes());
        framed.extend_from_slice(&bytes);
        seal(&mut framed, 0);
        prop_assert!(decode(&framed).is_err());
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn any_record_round_trips(
        stream in "[a-zäß/:-]{1,40}", payload in proptest::collection::vec(any::<u8>(), 0..600),
        sequence in 1..=MAX_SEQUENCE, version in 1..=MAX_SEQUENCE, epoch: u64, at_micros: u64, schema: u16, continues: bool,
    ) {
        let record = Record {
            schema, continues, stream: &stream, sequence, version, at_micros, epoch,
            trace: None, previous: ChainHash::of(b""), payload: &payload, commit: sequence,
        };
        let mut bytes = encoded(&record);
        bytes.extend_from_slice(b"following");
        prop_assert_eq!(decode(&bytes).unwrap().entry, Entry::Record(record));
    }
}
