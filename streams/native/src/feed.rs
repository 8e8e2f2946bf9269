//! The queues of a consumer's partitions, emptied into blocks.
//!
//! A partition's queue is taken out of the consumer's, so that `Consumer.poll` still serves
//! rebalances, errors and statistics, and never sees a record.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::block::{Block, Record, encode_header};
use crate::librdkafka::{Api, Client, Message, Peek, Queue};
use crate::plugin::Met;
use crate::pool;

const BATCH: usize = 1_000;

/// An error that came in place of a record: its partition, code and text.
pub struct Failure {
    pub partition: i32,
    pub code: i32,
    pub text: String,
}

/// What one call of `read` found.
#[derive(Default)]
pub struct Found {
    pub blocks: Vec<(i32, Block)>,
    pub failures: Vec<Failure>,
    pub rows: usize,
}

/// The client was destroyed: nothing can be read any more.
#[derive(Debug)]
pub struct Gone;

/// Rung by librdkafka when an empty queue gets something.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    change: Condvar,
}

impl Bell {
    fn ring(&self) {
        *locked(&self.rung) = true;
        self.change.notify_all();
    }

    fn silence(&self) {
        *locked(&self.rung) = false;
    }

    /// Waits until it rings, at most until `deadline`; whether it rang.
    fn wait(&self, deadline: Instant) -> bool {
        let mut rung = locked(&self.rung);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if *rung || left.is_zero() {
                return std::mem::take(&mut *rung);
            }
            let waited = self.change.wait_timeout(rung, left);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

unsafe extern "C" fn ring(_client: *mut Client, bell: *mut c_void) {
    // SAFETY: `Queues` keeps the bell until no queue can ring it any more.
    unsafe { (*bell.cast::<Bell>()).ring() }
}

/// The queues in use. They are given back before the client is destroyed.
struct Queues {
    api: &'static Api,
    bell: Arc<Bell>,
    main: *mut Queue,
    partitions: BTreeMap<i32, *mut Queue>,
}

// SAFETY: queues may be used from any thread; access is behind a mutex.
unsafe impl Send for Queues {}

impl Queues {
    fn listen(&self, queue: *mut Queue) {
        let bell = Arc::as_ptr(&self.bell).cast_mut().cast();
        // SAFETY: the queue is alive, and so is the bell until `release`.
        unsafe { (self.api.on_event)(queue, Some(ring), bell) }
    }

    fn release(&self, queue: *mut Queue) {
        // SAFETY: made by librdkafka and not given back yet; after the first call nothing rings.
        unsafe {
            (self.api.on_event)(queue, None, std::ptr::null_mut());
            (self.api.destroy_queue)(queue);
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        for queue in std::mem::take(&mut self.partitions).into_values() {
            self.release(queue);
        }
        self.release(self.main);
    }
}

/// Reads the partitions of one topic from the queues of one consumer.
pub struct Feed {
    api: &'static Api,
    peek: Peek,
    met: Arc<Met>,
    topic: CString,
    bell: Arc<Bell>,
    /// None once the client is gone.
    queues: Arc<Mutex<Option<Queues>>>,
}

impl Feed {
    pub fn new(api: &'static Api, met: Arc<Met>, topic: CString) -> Self {
        let bell = Arc::new(Bell::default());
        // SAFETY: the client has just been claimed, so it is alive.
        let main = unsafe { (api.consumer_queue)(met.client) };
        let queues = Queues { api, bell: Arc::clone(&bell), main, partitions: BTreeMap::new() };
        queues.listen(main);
        let queues = Arc::new(Mutex::new(Some(queues)));
        let held = Arc::clone(&queues);
        *locked(&met.held) = Some(Box::new(move || drop(locked(&held).take())));
        Self { api, peek: Peek::of(api), met, topic, bell, queues }
    }

    /// Takes the partition's queue out of the consumer's; to be called before it is assigned.
    pub fn place(&self, partition: i32) -> Result<(), Gone> {
        let mut guard = locked(&self.queues);
        let queues = guard.as_mut().ok_or(Gone)?;
        if queues.partitions.contains_key(&partition) {
            return Ok(());
        }
        // SAFETY: the client is alive while the queues are there.
        let queue =
            unsafe { (self.api.partition_queue)(self.met.client, self.topic.as_ptr(), partition) };
        if queue.is_null() {
            return Err(Gone);
        }
        // SAFETY: as above.
        unsafe { (self.api.forward)(queue, std::ptr::null_mut()) };
        queues.listen(queue);
        queues.partitions.insert(partition, queue);
        Ok(())
    }

    /// Stops reading a partition.
    pub fn leave(&self, partition: i32) {
        if let Some(queues) = locked(&self.queues).as_mut()
            && let Some(queue) = queues.partitions.remove(&partition)
        {
            queues.release(queue);
        }
    }

    /// Reads until `least` records are there, the consumer's own queue has something, or the time
    /// is over; at most about `most` records.
    pub fn read(&self, wait: Duration, least: usize, most: usize) -> Result<Found, Gone> {
        let deadline = Instant::now() + wait;
        let mut found = Found::default();
        let mut blocks = BTreeMap::new();
        loop {
            self.bell.silence();
            self.drain(&mut found, &mut blocks, most)?;
            if found.rows >= least || !found.failures.is_empty() || !self.bell.wait(deadline) {
                break;
            }
            if found.rows == 0 && least <= 1 {
                // What rang may be the consumer's own queue.
                self.drain(&mut found, &mut blocks, most)?;
                break;
            }
        }
        found.blocks = blocks.into_iter().collect();
        Ok(found)
    }

    fn drain(
        &self,
        found: &mut Found,
        blocks: &mut BTreeMap<i32, Block>,
        most: usize,
    ) -> Result<(), Gone> {
        let guard = locked(&self.queues);
        let queues = guard.as_ref().ok_or(Gone)?;
        let mut messages = [std::ptr::null_mut::<Message>(); BATCH];
        let mut encoded = Vec::new();
        let mut open: Vec<_> = queues.partitions.iter().map(|(p, q)| (*p, *q)).collect();
        while !open.is_empty() && found.rows < most {
            open.retain(|&(partition, queue)| {
                // SAFETY: the queue is alive while the guard is held; the array has that size.
                let count = unsafe { (self.api.consume)(queue, 0, messages.as_mut_ptr(), BATCH) };
                let count = usize::try_from(count).unwrap_or(0);
                if count > 0 {
                    let block = blocks.entry(partition).or_insert_with(pool::block);
                    for &message in &messages[..count] {
                        // SAFETY: librdkafka has given the message to us.
                        unsafe { self.take(message, &mut encoded, block, found) };
                    }
                }
                count == BATCH
            });
        }
        Ok(())
    }

    /// `encoded` is room for headers, used again and again.
    ///
    /// # Safety
    /// The message must be one that librdkafka has given, once.
    unsafe fn take(
        &self,
        message: *mut Message,
        encoded: &mut Vec<u8>,
        block: &mut Block,
        found: &mut Found,
    ) {
        // SAFETY: as promised; the pointers in it are valid until it is destroyed.
        unsafe {
            let one = &*message;
            if one.err == 0 {
                let mut kind: c_int = 0;
                let stamp = (self.api.timestamp)(message, &mut kind);
                let headers = self.headers(message, encoded).then_some(encoded.as_slice());
                block.push(&Record {
                    offset: one.offset,
                    value: bytes(one.payload, one.len),
                    key: bytes(one.key, one.key_len),
                    stamp,
                    stamp_kind: kind as u8,
                    headers,
                });
                found.rows += 1;
            } else {
                let text = bytes(one.payload, one.len).map_or_else(
                    || CStr::from_ptr((self.api.error_text)(one.err)).to_string_lossy(),
                    String::from_utf8_lossy,
                );
                found.failures.push(Failure {
                    partition: one.partition,
                    code: one.err,
                    text: text.into_owned(),
                });
            }
            (self.api.destroy_message)(message);
        }
    }

    /// Encodes the headers of a message; false where it has none.
    ///
    /// # Safety
    /// The message must be alive.
    unsafe fn headers(&self, message: *mut Message, encoded: &mut Vec<u8>) -> bool {
        let mut list = std::ptr::null_mut();
        // SAFETY: the list lives as long as the message; names are zero-terminated.
        unsafe {
            if self.peek.headerless(message) || (self.api.headers)(message, &mut list) != 0 {
                return false;
            }
            encoded.clear();
            let (mut name, mut value, mut size) = (std::ptr::null(), std::ptr::null(), 0);
            for at in 0.. {
                if (self.api.header)(list, at, &mut name, &mut value, &mut size) != 0 {
                    break;
                }
                let name = CStr::from_ptr(name).to_bytes();
                encode_header(encoded, name, bytes(value.cast(), size));
            }
            true
        }
    }
}

/// # Safety
/// Either null, or that many bytes.
unsafe fn bytes<'a>(at: *const u8, size: usize) -> Option<&'a [u8]> {
    // SAFETY: as promised.
    (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, size) })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
