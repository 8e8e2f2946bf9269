//! One Avro value after the other from a byte slice. Every read is checked: what does not fit is
//! `Unfit`, and nothing is read past the end.
//!
//! It refuses more than it must (an integer of ten bytes whose last one overflows 64 bits, for
//! example): what is refused here is decided by the decoder in Python, which gives the reasons.

/// The bytes are not plainly good.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfit;

/// Where reading is in one record.
pub struct Cursor<'a> {
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// All bytes have been read.
    #[inline]
    pub fn at_end(&self) -> bool {
        self.left.is_empty()
    }

    #[inline]
    pub fn take(&mut self, size: usize) -> Result<&'a [u8], Unfit> {
        let (taken, left) = self.left.split_at_checked(size).ok_or(Unfit)?;
        self.left = left;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Unfit> {
        let (taken, left) = self.left.split_first_chunk().ok_or(Unfit)?;
        self.left = left;
        Ok(*taken)
    }

    /// A zigzag variable-length integer of at most 64 bits.
    #[inline]
    pub fn long(&mut self) -> Result<i64, Unfit> {
        let bits = self.varint()?;
        Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    /// Up to eight bytes are taken as one word: where the first byte without a continuation bit
    /// is says how many count, and three shifts close the gaps between their groups of seven bits.
    #[inline]
    fn varint(&mut self) -> Result<u64, Unfit> {
        const STOPS: u64 = 0x8080_8080_8080_8080;
        if let Some(&first) = self.left.first()
            && first < 0x80
        {
            self.left = &self.left[1..];
            return Ok(u64::from(first));
        }
        if let Some(word) = self.left.first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let stops = !word & STOPS;
            if stops != 0 {
                let width = stops.trailing_zeros() / 8 + 1;
                self.left = &self.left[width as usize..];
                let kept = word & (u64::MAX >> (64 - 8 * width)) & !STOPS;
                let pairs = kept & 0x007f_007f_007f_007f | (kept & 0x7f00_7f00_7f00_7f00) >> 1;
                let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
                return Ok(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4);
            }
        }
        self.slow_varint()
    }

    #[cold]
    fn slow_varint(&mut self) -> Result<u64, Unfit> {
        let mut bits = 0u64;
        for (at, &byte) in self.left.iter().take(10).enumerate() {
            if at == 9 && byte > 1 {
                break;
            }
            bits |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.left = &self.left[at + 1..];
                return Ok(bits);
            }
        }
        Err(Unfit)
    }

    /// Bytes with their length before them.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Unfit> {
        let size = self.long()?;
        self.take(usize::try_from(size).map_err(|_| Unfit)?)
    }

    #[inline]
    pub fn boolean(&mut self) -> Result<bool, Unfit> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Unfit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(bytes: &[u8]) -> Result<(i64, bool), Unfit> {
        let mut cursor = Cursor::new(bytes);
        Ok((cursor.long()?, cursor.at_end()))
    }

    #[test]
    fn integers_of_all_widths() {
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(long(&most), Ok((i64::MIN, true)));
        assert_eq!(long(&[0x80, 0x01]), Ok((64, true)));
        assert_eq!(long(&[0x01, 0x01]), Ok((-1, false)));
    }

    #[test]
    fn both_ways_of_reading_an_integer_agree() {
        let mut seed = 1u64;
        for width in 1..=10 {
            for _ in 0..1_000 {
                let mut bytes = [0u8; 16];
                for byte in &mut bytes {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (seed >> 56) as u8 | 0x80;
                }
                bytes[width - 1] &= if width == 10 { 1 } else { 0x7f };
                for end in [width - 1, width, width + 1, 16] {
                    let (mut fast, mut slow) =
                        (Cursor::new(&bytes[..end]), Cursor::new(&bytes[..end]));
                    assert_eq!(fast.varint(), slow.slow_varint());
                    assert_eq!(fast.left, slow.left);
                }
            }
        }
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        assert_eq!(long(&[]), Err(Unfit));
        assert_eq!(long(&[0x80]), Err(Unfit));
        assert_eq!(long(&[0x80; 11]), Err(Unfit));
        let overflow = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(long(&overflow), Err(Unfit));
    }

    #[test]
    fn lengths_never_lead_past_the_end() {
        assert_eq!(Cursor::new(&[0x04, b'a']).bytes(), Err(Unfit));
        assert_eq!(Cursor::new(&[0x01]).bytes(), Err(Unfit));
        assert_eq!(Cursor::new(&[0x04, b'a', b'b']).bytes(), Ok(b"ab".as_slice()));
        assert_eq!(Cursor::new(&[2]).boolean(), Err(Unfit));
    }
}
