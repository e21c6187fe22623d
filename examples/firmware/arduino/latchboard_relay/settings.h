// What only you know. The rest, latchboard_config.h, comes from the service: GET /devices/{deviceId}/config?format=arduino.
#pragma once

#define WIFI_NAME "your network"
#define WIFI_PASSWORD "your password"

#define RELAY_PIN 26
#define RELAY_ON_LEVEL HIGH  // LOW for relay boards that switch on at 0 V

#define TELEMETRY_EVERY_MS 60000UL

// 1: encrypted, if the service has MQTT over TLS. Without it everybody in the network can read the password.
#define USE_TLS 0

#if USE_TLS
#define NTP_SERVER "pool.ntp.org"  // an ESP8266 needs the time to check the certificate
// The file ca.pem that `latchboard tls init` has made. MQTT_HOST must be a name of the server's certificate.
static const char CA_PEM[] = R"(
-----BEGIN CERTIFICATE-----
...
-----END CERTIFICATE-----
)";
#endif
