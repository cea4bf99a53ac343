//! Event files, read back by a parser that shares nothing with the writer.

use bilevel_report::events::EventFile;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("report-events-{name}-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&path);
    path
}

/// CRC-32C bit by bit, and TFRecord's mask.
fn masked(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(number(8), masked(&rest[..8]), "checksum of the length");
        let data = &rest[12..12 + length];
        assert_eq!(number(12 + length), masked(data), "checksum of the data");
        records.push(data.to_vec());
        rest = &rest[16 + length..];
    }
    records
}

/// The fields of a message: number and raw value.
fn fields(mut data: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(data: &mut &[u8]) -> u64 {
        let mut value = 0;
        for i in 0.. {
            let byte = data[0];
            *data = &data[1..];
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !data.is_empty() {
        let key = varint(&mut data);
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, varint(&mut data).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut data) as usize,
            5 => 4,
            kind => panic!("kind {kind} is not written"),
        };
        fields.push((key >> 3, data[..length].to_vec()));
        data = &data[length..];
    }
    fields
}

fn field(fields: &[(u64, Vec<u8>)], number: u64) -> Option<Vec<u8>> {
    fields.iter().find(|f| f.0 == number).map(|f| f.1.clone())
}

#[test]
fn what_is_written_is_read_back() {
    let folder = folder("back");
    let mut file = EventFile::create(&folder, "a test").unwrap();
    let long = "a long tag/".repeat(30);
    let written = [("loss", 0, 0.5), ("loss", 300, -0.25), (long.as_str(), u64::from(u32::MAX) + 7, 1e300)];
    for (i, (tag, step, value)) in written.iter().enumerate() {
        file.scalar(tag, *step, *value, 1.7e9 + i as f64).unwrap();
    }
    file.flush().unwrap();
    let records = records(file.path());
    assert_eq!(field(&fields(&records[0]), 3).unwrap(), b"brain.Event:2");
    assert_eq!(records.len(), 1 + written.len());
    for (i, (record, (tag, step, value))) in records[1..].iter().zip(written).enumerate() {
        let event = fields(record);
        let eight = |number| field(&event, number).unwrap_or(vec![0; 8]).try_into().unwrap();
        assert_eq!(f64::from_le_bytes(eight(1)), 1.7e9 + i as f64);
        assert_eq!(u64::from_le_bytes(eight(2)), step);
        let summary = fields(&fields(&field(&event, 5).unwrap())[0].1);
        assert_eq!(field(&summary, 1).unwrap(), tag.as_bytes());
        assert_eq!(f32::from_le_bytes(field(&summary, 2).unwrap().try_into().unwrap()), value as f32);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let folder = folder("twice");
    let files: Vec<EventFile> = (0..3).map(|_| EventFile::create(&folder, "run").unwrap()).collect();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
    assert!(files.iter().all(|file| file.path().to_string_lossy().contains("events.out.tfevents.")));
    std::fs::remove_dir_all(folder).unwrap();
}
