//! Tokens for a broker that takes unsecured ones.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rdkafka::client::OAuthToken;
use serde_json::{Value, json};

/// A token that a broker with [`Security::OauthBearer`](super::Security::OauthBearer) accepts for `principal`, from
/// `issued_at` and for `lifetime`: an unsecured JWS (RFC 7515, appendix A.5), whose expiry the broker enforces.
///
/// One whose time is over already is made too. librdkafka would not send it, unless
/// [`OAuthToken::lifetime_ms`] is set to a later time than the token's own.
pub fn unsecured_token(principal: &str, issued_at: SystemTime, lifetime: Duration) -> OAuthToken {
    let issued_at = issued_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let expires_at = issued_at.saturating_add(lifetime);
    let claims = json!({
        "sub": principal,
        "iat": issued_at.as_secs_f64(),
        "exp": expires_at.as_secs_f64(),
    });
    let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
    OAuthToken {
        token: format!("{}.{}.", encode(json!({ "alg": "none" })), encode(claims)),
        principal_name: principal.to_owned(),
        lifetime_ms: i64::try_from(expires_at.as_millis()).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_whose_it_is_and_from_when_until_when() {
        let issued_at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        let token = unsecured_token("alice", issued_at, Duration::from_secs(90));
        assert_eq!(token.principal_name, "alice");
        assert_eq!(token.lifetime_ms, 1_700_000_090_250);
        let parts: Vec<_> = token.token.split('.').collect();
        let [header, claims, signature] = parts[..] else { panic!("{} parts", parts.len()) };
        let decode = |part| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        assert_eq!(decode(header), json!({ "alg": "none" }));
        assert_eq!(
            decode(claims),
            json!({ "sub": "alice", "iat": 1_700_000_000.25, "exp": 1_700_000_090.25 })
        );
        assert_eq!(signature, "");
    }
}
