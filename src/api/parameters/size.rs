//! Sizes of memory and disk.
//!
//! Three notations meet here: Kubernetes writes bytes as a bare number and binary units as `Ki`,
//! `Mi`, …; QEMU and its driver read `K`, `M`, … as binary; and to `qemu -m` a bare number means
//! MiB. What leaves this module carries a unit and means the same to all of them.

use serde_json::Value;

const KIB: u128 = 1 << 10;
/// What fits into the signed 64-bit offsets of QEMU's block layer.
const MAX: u128 = i64::MAX as u128;
/// Below this, a number of bytes was most likely meant as something else.
const MIN: u128 = 1 << 20;

/// What is wrong with a size, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) problem: &'static str,
    pub(super) remedy: &'static str,
}

const HOW: &str = "write a number with a unit, e.g. 512Mi or 16Gi";

const fn refused(problem: &'static str, remedy: &'static str) -> Refused {
    Refused { problem, remedy }
}

/// Normalises a size: a number of bytes, a Kubernetes quantity with a binary unit (`4Gi`) or a QEMU
/// size (`4G`, which is 4 GiB too, in either case of the letter). Fractions of a KiB are rounded up.
pub(super) fn normalise(value: &Value) -> Result<String, Refused> {
    let bytes = match value {
        Value::Number(number) => u128::from(
            number
                .as_u64()
                .ok_or(refused("is not a whole number of bytes above zero", HOW))?,
        ),
        Value::String(text) => bytes_of(text)?,
        _ => return Err(refused("must be a size", HOW)),
    };
    if bytes < MIN {
        return Err(refused(
            "is less than 1 MiB (a number without a unit is bytes)",
            "add the unit that was meant, e.g. 4096Mi",
        ));
    }
    if bytes > MAX {
        return Err(refused("is more than QEMU can address", HOW));
    }
    let kib = bytes.div_ceil(KIB);
    let (amount, unit) = [(30, "T"), (20, "G"), (10, "M")]
        .into_iter()
        .find(|(shift, _)| kib.is_multiple_of(1 << shift))
        .map_or((kib, "K"), |(shift, unit)| (kib >> shift, unit));
    Ok(format!("{amount}{unit}"))
}

fn bytes_of(text: &str) -> Result<u128, Refused> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "ki" => 10,
        "m" | "mi" => 20,
        "g" | "gi" => 30,
        "t" | "ti" => 40,
        "kb" | "mb" | "gb" | "tb" | "kib" | "mib" | "gib" | "tib" => {
            return Err(refused(
                "has a unit that is read in different ways",
                "leave out the B: K, M, G, T and Ki, Mi, Gi, Ti are powers of 1024",
            ));
        }
        _ => return Err(refused("is not a size", HOW)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let not_a_size = || refused("is not a size", HOW);
    // Nine digits are exact to the byte in every unit but T, where a byte is of no concern.
    if whole.len() > 20 || fraction.len() > 9 || (shift == 0 && !fraction.is_empty()) {
        return Err(not_a_size());
    }
    let whole: u128 = whole.parse().map_err(|_| not_a_size())?;
    let part = if number.contains('.') {
        let digits: u128 = fraction.parse().map_err(|_| not_a_size())?;
        (digits << shift).div_ceil(10_u128.pow(u32::try_from(fraction.len()).unwrap_or(9)))
    } else {
        0
    };
    Ok((whole << shift) + part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn every_notation_comes_out_as_qemu_reads_it() {
        for (given, expected) in [
            (json!("4Gi"), "4G"),
            (json!("16Gi"), "16G"),
            (json!("512Mi"), "512M"),
            (json!("4G"), "4G"),
            (json!("4g"), "4G"),
            (json!("512m"), "512M"),
            (json!("1Ti"), "1T"),
            (json!("1024Mi"), "1G"),
            (json!("1.5Gi"), "1536M"),
            (json!("2048Ki"), "2M"),
            (json!("1025Ki"), "1025K"),
            (json!(4_294_967_296_u64), "4G"),
            (json!("4294967296"), "4G"),
            (json!(4_000_000_000_u64), "3906250K"),
            (json!(1_048_577), "1025K"),
        ] {
            assert_eq!(normalise(&given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_a_remedy() {
        for (given, problem) in [
            (json!(4096), "less than 1 MiB"),
            (json!("4096"), "less than 1 MiB"),
            (json!("4Ki"), "less than 1 MiB"),
            (json!(0), "less than 1 MiB"),
            (json!(-1), "not a whole number"),
            (json!(4.5e9), "not a whole number"),
            (json!("4GB"), "different ways"),
            (json!("4GiB"), "different ways"),
            (json!("-4Gi"), "not a size"),
            (json!("4 Gi"), "not a size"),
            (json!("4e9"), "not a size"),
            (json!("Gi"), "not a size"),
            (json!(""), "not a size"),
            (json!("."), "not a size"),
            (json!("1.Gi"), "not a size"),
            (json!(".5Gi"), "not a size"),
            (json!("1.2.3Gi"), "not a size"),
            (json!("4Gi\n"), "not a size"),
            (json!("4Ei"), "not a size"),
            (json!("99999999999Ti"), "more than QEMU"),
            (json!("99999999999999999999999Ti"), "not a size"),
            (json!(true), "must be a size"),
            (json!(["4Gi"]), "must be a size"),
        ] {
            let error = normalise(&given).unwrap_err();
            assert!(error.problem.contains(problem), "{given}: {error:?}");
            assert!(!error.remedy.is_empty());
        }
    }

    fn bytes(size: &str) -> u128 {
        bytes_of(size).unwrap()
    }

    proptest! {
        #[test]
        fn a_number_of_bytes_loses_less_than_a_kib(n in (1_u64 << 20)..=(i64::MAX as u64)) {
            let size = bytes(&normalise(&json!(n)).unwrap());
            prop_assert!(size >= u128::from(n) && size - u128::from(n) < KIB);
        }

        #[test]
        fn normalising_twice_changes_nothing(text in "[0-9]{1,6}(\\.[0-9]{1,3})?[KMGTkmgt]i?") {
            if let Ok(once) = normalise(&json!(text)) {
                prop_assert_eq!(normalise(&json!(once)).unwrap(), once);
            }
        }

        #[test]
        fn nothing_but_digits_and_a_unit_comes_out(text in "\\PC{0,12}|[0-9.kKMGTi]{0,12}") {
            if let Ok(size) = normalise(&json!(text)) {
                let (digits, unit) = size.split_at(size.len() - 1);
                prop_assert!(digits.bytes().all(|b| b.is_ascii_digit()) && "KMGT".contains(unit));
            }
        }
    }
}
