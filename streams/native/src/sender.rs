//! Batches of records to a producer, without the GIL.
//!
//! The producer is confluent-kafka's, with its settings, idempotence and transactions; this only
//! hands it many records at once. Their opaque pointer stays null, so that confluent-kafka's own
//! report, which is about an object of Python, passes over them: a loss is told by the plugin.

use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::feed::Gone;
use crate::librdkafka::{Api, Bytes, COPY, Error, Header, Part, PartKind, PartValue, Topic};
use crate::plugin::{Losses, Met, watch};

/// Records to be sent, in one buffer.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    records: Vec<Record>,
    headers: Vec<Named>,
}

struct Record {
    key: Range<usize>,
    value: Range<usize>,
    headers: Range<usize>,
}

/// A header: where its name begins, which ends with a zero, and its value.
struct Named {
    name: usize,
    value: Option<Range<usize>>,
}

impl Batch {
    /// One more record, without headers so far.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let (key, value) = (self.keep(key), self.keep(value));
        let headers = self.headers.len()..self.headers.len();
        self.records.push(Record { key, value, headers });
    }

    /// One more header of the last record. There must be no zero in the name.
    pub fn header(&mut self, name: &[u8], value: Option<&[u8]>) {
        let name = self.keep(name).start;
        self.bytes.push(0);
        let value = value.map(|bytes| self.keep(bytes));
        self.headers.push(Named { name, value });
        if let Some(record) = self.records.last_mut() {
            record.headers.end = self.headers.len();
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// What librdkafka is told of a record. It points into this batch.
    fn parts(&self, record: &Record, into: &mut Vec<Part>) {
        into.push(self.part(PartKind::Key, &record.key));
        into.push(self.part(PartKind::Value, &record.value));
        into.extend(self.headers[record.headers.clone()].iter().map(|one| {
            let value = one.value.as_ref().map(|range| self.slice(range));
            let header = Header {
                name: self.bytes[one.name..].as_ptr().cast(),
                value: value.map_or(std::ptr::null(), |bytes| bytes.at),
                size: value.map_or(0, |bytes| bytes.size as isize),
            };
            Part { kind: PartKind::Header, value: PartValue { header } }
        }));
    }

    fn part(&self, kind: PartKind, range: &Range<usize>) -> Part {
        Part { kind, value: PartValue { bytes: self.slice(range) } }
    }

    fn slice(&self, range: &Range<usize>) -> Bytes {
        Bytes { at: self.bytes[range.clone()].as_ptr(), size: range.len() }
    }
}

/// Sends to one topic through one producer.
pub struct Sender {
    api: &'static Api,
    met: Arc<Met>,
    losses: Arc<Losses>,
    /// None once the producer is gone.
    topic: Arc<Mutex<Option<Held>>>,
}

/// A topic that is given back before the producer is destroyed.
struct Held {
    api: &'static Api,
    topic: *mut Topic,
}

// SAFETY: librdkafka's functions may be called from any thread.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: made by librdkafka, and not given back yet.
        unsafe { (self.api.destroy_topic)(self.topic) }
    }
}

impl Sender {
    /// None if librdkafka refuses the topic.
    pub fn new(api: &'static Api, met: Arc<Met>, topic: &CStr) -> Option<Self> {
        // SAFETY: the client has just been claimed, so it is alive.
        let topic = unsafe { (api.new_topic)(met.client, topic.as_ptr(), std::ptr::null_mut()) };
        if topic.is_null() {
            return None;
        }
        let topic = Arc::new(Mutex::new(Some(Held { api, topic })));
        let held = Arc::clone(&topic);
        let give_back = move || drop(held.lock().unwrap_or_else(PoisonError::into_inner).take());
        *met.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(give_back));
        let losses = watch(&met);
        Some(Self { api, met, losses, topic })
    }

    /// Hands over records in order until one is refused; how many were taken, and the code of
    /// that error or 0.
    pub fn send(&self, partition: i32, batch: &Batch) -> Result<(usize, c_int), Gone> {
        let guard = self.topic.lock().unwrap_or_else(PoisonError::into_inner);
        let topic = guard.as_ref().ok_or(Gone)?.topic;
        let mut parts = vec![
            Part { kind: PartKind::Topic, value: PartValue { topic } },
            Part { kind: PartKind::Partition, value: PartValue { partition } },
            Part { kind: PartKind::Flags, value: PartValue { flags: COPY } },
        ];
        let shared = parts.len();
        for (row, record) in batch.records.iter().enumerate() {
            parts.truncate(shared);
            batch.parts(record, &mut parts);
            // SAFETY: the client is alive while the guard is held, and all parts point to what is
            // alive and is copied.
            let error = unsafe { (self.api.produce)(self.met.client, parts.as_ptr(), parts.len()) };
            if !error.is_null() {
                return Ok((row, self.code_of(error)));
            }
        }
        Ok((batch.records.len(), 0))
    }

    /// The error code of the first record since the last call that was not delivered.
    pub fn lost(&self) -> Option<c_int> {
        self.losses.take()
    }

    fn code_of(&self, error: *mut Error) -> c_int {
        // SAFETY: librdkafka has given the error to us.
        unsafe {
            let code = (self.api.error_code)(error);
            (self.api.destroy_error)(error);
            code
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key, value and headers as librdkafka would read them.
    fn read(batch: &Batch, row: usize) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        batch.parts(&batch.records[row], &mut parts);
        // SAFETY: the parts point into the batch, and the kind says which member was written.
        let slice = |at, size| unsafe { std::slice::from_raw_parts(at, size) }.to_vec();
        let bytes = |part: &Part| unsafe { slice(part.value.bytes.at, part.value.bytes.size) };
        let header = |part: &Part| unsafe {
            let one = part.value.header;
            let name = CStr::from_ptr(one.name).to_bytes().to_vec();
            let null = one.value.is_null();
            let value = if null { b"null".into() } else { slice(one.value, one.size as usize) };
            [name, value]
        };
        parts[..2].iter().map(bytes).chain(parts[2..].iter().flat_map(header)).collect()
    }

    #[test]
    fn a_batch_says_what_was_put_into_it() {
        let mut batch = Batch::default();
        batch.push(b"k", b"v");
        batch.header(b"a", Some(b"1"));
        batch.header(b"b", None);
        batch.push(b"", b"");
        batch.push(b"key", b"value");
        batch.header(b"a", Some(b""));
        let read = |row| read(&batch, row);
        assert_eq!(read(0), [&b"k"[..], b"v", b"a", b"1", b"b", b"null"]);
        assert_eq!(read(1), [b"", b""]);
        assert_eq!(read(2), [&b"key"[..], b"value", b"a", b""]);
    }
}
