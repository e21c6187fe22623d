// What only you know. The rest comes from the service: latchboard_config.h, for one device (GET
// /devices/{deviceId}/config?format=arduino), or, for many boards with one firmware, by a provisioning code.
#pragma once

#define WIFI_NAME "your network"
#define WIFI_PASSWORD "your password"

#define RELAY_PIN 26
#define RELAY_ON_LEVEL HIGH  // LOW for relay boards that switch on at 0 V

// For a board with more than this relay: each further relay as {pin, "name"}, each button as {pin, "name", number of the relay that
// it toggles, or 0}, and a comma after each of them. A pressed button connects its pin to ground. The relays are channel 1, 2, …; the
// buttons follow.
#define RELAY_NAME "Relay"
#define MORE_RELAYS  // {27, "Light"},
#define BUTTONS      // {0, "Button", 1},

#define TELEMETRY_EVERY_MS 60000UL

// 1: each board trades the code for credentials of its own at its first start, and latchboard_config.h is not needed.
#define USE_PROVISIONING 0

#if USE_PROVISIONING
#define SERVICE_URL "http://192.168.1.10:8080"  // https with USE_TLS 1, and only then: the answer is a password
#define PROVISIONING_CODE "lbp_..."
#endif

// 1: encrypted, if the service has MQTT over TLS. Without it everybody in the network can read the password.
#define USE_TLS 0

#if USE_TLS
#define NTP_SERVER "pool.ntp.org"  // an ESP8266 needs the time to check the certificate
// The file ca.pem that `latchboard tls init` has made. MQTT_HOST must be a name of the server's certificate; with a provisioning
// code the host in SERVICE_URL, too, and both certificates come from this authority.
static const char CA_PEM[] = R"(
-----BEGIN CERTIFICATE-----
...
-----END CERTIFICATE-----
)";
#endif
