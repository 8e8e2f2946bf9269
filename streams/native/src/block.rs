//! Records of one partition as columns: what librdkafka holds per record, copied once into few
//! large buffers.

use std::ops::Range;

const NULL: u64 = 1 << 63;

/// Byte strings behind each other, each possibly null.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where each one ends; the highest bit says that it is null (and empty).
    ends: Vec<u64>,
}

impl Strings {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    pub fn push(&mut self, one: Option<&[u8]>) {
        match one {
            Some(bytes) => {
                self.bytes.extend_from_slice(bytes);
                self.ends.push(self.bytes.len() as u64);
            }
            None => self.ends.push(self.bytes.len() as u64 | NULL),
        }
    }

    #[inline]
    fn start(&self, row: usize) -> usize {
        if row == 0 { 0 } else { (self.ends[row - 1] & !NULL) as usize }
    }

    /// One of them. Panics past the end.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let end = self.ends[row];
        (end & NULL == 0).then(|| &self.bytes[self.start(row)..end as usize])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn capacity(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u64>()
    }

    fn append(&mut self, other: &Self, rows: Range<usize>) {
        let (start, shift) = (other.start(rows.start), self.bytes.len());
        let stop = other.start(rows.end);
        self.bytes.extend_from_slice(&other.bytes[start..stop]);
        let moved = other.ends[rows].iter();
        self.ends
            .extend(moved.map(|end| ((end & !NULL) as usize - start + shift) as u64 | end & NULL));
    }
}

/// Records in offset order.
///
/// `headers` holds one entry per record in the form of [`encode_header`], repeated; it is empty as
/// a whole while no record has any.
#[derive(Default)]
pub struct Block {
    pub values: Strings,
    pub keys: Strings,
    pub offsets: Vec<i64>,
    pub stamps: Vec<i64>,
    pub stamp_kinds: Vec<u8>,
    headers: Strings,
}

/// What is known of one record, borrowed from the client.
pub struct Record<'a> {
    pub offset: i64,
    pub value: Option<&'a [u8]>,
    pub key: Option<&'a [u8]>,
    pub stamp: i64,
    pub stamp_kind: u8,
    /// Encoded headers; None where it has none.
    pub headers: Option<&'a [u8]>,
}

impl Block {
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    #[inline]
    pub fn push(&mut self, record: &Record) {
        if record.headers.is_some() {
            self.fill_headers();
            self.headers.push(record.headers);
        } else if self.headers.len() > 0 {
            self.headers.push(None);
        }
        self.values.push(record.value);
        self.keys.push(record.key);
        self.offsets.push(record.offset);
        self.stamps.push(record.stamp);
        self.stamp_kinds.push(record.stamp_kind);
    }

    /// Copies some of another block's records behind these.
    pub fn append(&mut self, other: &Self, rows: Range<usize>) {
        if other.headers.len() > 0 {
            self.fill_headers();
            self.headers.append(&other.headers, rows.clone());
        } else if self.headers.len() > 0 {
            rows.clone().for_each(|_| self.headers.push(None));
        }
        self.values.append(&other.values, rows.clone());
        self.keys.append(&other.keys, rows.clone());
        self.offsets.extend_from_slice(&other.offsets[rows.clone()]);
        self.stamps.extend_from_slice(&other.stamps[rows.clone()]);
        self.stamp_kinds.extend_from_slice(&other.stamp_kinds[rows]);
    }

    /// Forgets all records and keeps the memory.
    pub fn clear(&mut self) {
        self.values.clear();
        self.keys.clear();
        self.headers.clear();
        self.offsets.clear();
        self.stamps.clear();
        self.stamp_kinds.clear();
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        let numbers = self.offsets.capacity() + self.stamps.capacity();
        let strings = [&self.values, &self.keys, &self.headers];
        let bytes: usize = strings.into_iter().map(Strings::capacity).sum();
        bytes + numbers * size_of::<i64>() + self.stamp_kinds.capacity()
    }

    /// Encoded headers of a record; None where it has none.
    pub fn headers(&self, row: usize) -> Option<&[u8]> {
        if self.headers.len() == 0 { None } else { self.headers.get(row) }
    }

    fn fill_headers(&mut self) {
        while self.headers.len() < self.offsets.len() {
            self.headers.push(None);
        }
    }
}

/// Appends one header: lengths as 8 bytes each (the value's is `u64::MAX` for null), name, value.
pub fn encode_header(into: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    into.extend_from_slice(&(name.len() as u64).to_le_bytes());
    into.extend_from_slice(&value.map_or(u64::MAX, |v| v.len() as u64).to_le_bytes());
    into.extend_from_slice(name);
    into.extend_from_slice(value.unwrap_or_default());
}

/// One header: its name, and its value unless that is null.
pub type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// The headers that `encode_header` has put behind each other.
pub fn decode_headers(mut from: &[u8]) -> impl Iterator<Item = Header<'_>> {
    std::iter::from_fn(move || {
        let (lengths, rest) = from.split_first_chunk::<16>()?;
        let (name, value) = lengths.split_at(8);
        let length = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let (name, rest) = rest.split_at(length(name) as usize);
        let null = length(value) == u64::MAX;
        let (value, rest) = rest.split_at(if null { 0 } else { length(value) as usize });
        from = rest;
        Some((name, (!null).then_some(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(
        offset: i64,
        value: Option<&'static [u8]>,
        headers: Option<&'static [u8]>,
    ) -> Record<'static> {
        Record { offset, value, key: Some(b"k"), stamp: offset, stamp_kind: 1, headers }
    }

    #[test]
    fn what_is_appended_in_parts_is_what_was_pushed() {
        let values: [Option<&[u8]>; 5] = [Some(b"abc"), None, Some(b""), Some(b"de"), None];
        let mut whole = Block::default();
        for (offset, value) in (0..).zip(values) {
            whole.push(&record(offset, value, (offset == 3).then_some(b"h".as_slice())));
        }
        for cut in 0..=5 {
            let mut parts = Block::default();
            parts.append(&whole, cut..5);
            parts.append(&whole, 0..cut);
            for row in 0..5 {
                let from = (cut + row) % 5;
                assert_eq!(parts.values.get(row), values[from]);
                assert_eq!(parts.headers(row), whole.headers(from));
                assert_eq!(parts.offsets[row], from as i64);
            }
        }
    }

    #[test]
    fn headers_come_back_as_they_were() {
        let mut encoded = Vec::new();
        let headers: [Header; 3] = [(b"a", Some(b"1")), (b"", None), (b"a", Some(b""))];
        for (name, value) in headers {
            encode_header(&mut encoded, name, value);
        }
        assert_eq!(decode_headers(&encoded).collect::<Vec<_>>(), headers);
    }
}
