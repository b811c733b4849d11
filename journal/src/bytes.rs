//! Reading little-endian fields from untrusted bytes without a way to panic.

/// Takes fields off the front of a slice.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// CRC-32 (IEEE 802.3, as in zlib and gzip).
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Appends the CRC of everything that `out` holds from `start` on.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize) {
    let sum = crc(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_le_bytes());
}

/// The bytes before a trailing CRC, if the CRC is right.
pub(crate) fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    (crc(body) == u32::from_le_bytes(*sum)).then_some(body)
}
