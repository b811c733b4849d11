//! RFC 3339 timestamps without a calendar library.

use std::time::{SystemTime, UNIX_EPOCH};

/// `time` in UTC with milliseconds, such as `2026-04-28T10:15:30.123Z`.
///
/// Times before 1970 are shown as 1970: no clock that matters here is there.
#[must_use]
pub fn rfc3339_millis(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil_date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// The Gregorian date of a day count since 1970-01-01.
///
/// Years are counted from 1 March, so that the leap day is a year's last day
/// and every 400-year era has the same number of days.
fn civil_date(days_since_epoch: u64) -> (u64, u64, u64) {
    const DAYS_FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days_since_epoch + DAYS_FROM_MARCH_OF_YEAR_0;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_moments_are_rendered() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_777_371_330_123, "2026-04-28T10:15:30.123Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(
                rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)),
                text
            );
        }
    }
}
