//! Blocks to be used again: fresh memory costs a page fault every four kilobytes, which is as much
//! as filling it.

use std::sync::{Mutex, PoisonError};

use crate::block::Block;

const BLOCKS_MAX: usize = 16;
const BYTES_MAX: usize = 64 << 20;

static FREE: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// An empty block, with memory where there is some at hand.
pub fn block() -> Block {
    FREE.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
}

/// Gives a block back that is not needed any more.
pub fn give_back(mut block: Block) {
    if block.capacity() == 0 || block.capacity() > BYTES_MAX / BLOCKS_MAX {
        return;
    }
    block.clear();
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    if free.len() < BLOCKS_MAX {
        free.push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Record;

    #[test]
    fn what_is_given_back_comes_again_and_is_empty() {
        let mut one = Block::default();
        let record =
            Record { offset: 1, value: None, key: None, stamp: 0, stamp_kind: 0, headers: None };
        one.push(&Record { value: Some(b"value"), headers: Some(b"h"), ..record });
        give_back(one);
        let again = block();
        assert!(again.capacity() > 0);
        assert_eq!(again.len(), 0);
        assert_eq!(again.values.len() + again.keys.len(), 0);
    }
}
