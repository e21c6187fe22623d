// With a provisioning code the board gets its own credentials from the service at its first start, and keeps them in its flash.
//
// The token makes the claim this board's own. It is stored before the first request: if an answer is lost, or the power fails before
// it is stored, the same request gets the same answer again. To claim anew (after the device was deleted, or for another service)
// erase the flash.
#pragma once

#include <LittleFS.h>
#ifdef ESP8266
#include <ESP8266HTTPClient.h>
#else
#include <HTTPClient.h>
#endif

static const char CLAIM_TOKEN_FILE[] = "/claim_token";
static const char CLAIM_ANSWER_FILE[] = "/latchboard.json";
static const uint32_t CLAIM_FIRST_PAUSE_MS = 2000;     // doubled after each request without an answer
static const uint32_t CLAIM_LONGEST_PAUSE_MS = 300000;
static const uint32_t CLAIM_REFUSED_PAUSE_MS = 900000;  // a person has to do something first
static const size_t CLAIM_TOKEN_SIZE = 41;
static const size_t CLAIM_TEXT_SIZE = 1024;

static char MQTT_HOST[254], MQTT_CLIENT_ID[65], MQTT_USERNAME[65], MQTT_PASSWORD[65], TOPIC_PREFIX[81];
static char TOPIC_STATUS[96], TOPIC_STATE[96], TOPIC_TELEMETRY[96], TOPIC_CMD[96], TOPIC_RESULT[96], TOPIC_SCHED[96];
static uint16_t MQTT_PORT = 0, MQTT_TLS_PORT = 0;

static char claimText[CLAIM_TEXT_SIZE];  // a file, a request or an answer
static char claimToken[CLAIM_TOKEN_SIZE] = "";
static bool claimDone = false, claimLooked = false;
static uint32_t claimAsked = 0, claimWaitMs = 0, claimBackoffMs = CLAIM_FIRST_PAUSE_MS;

static bool readFile(const char* path, char* text, size_t size) {
  if (!LittleFS.exists(path)) return false;
  File file = LittleFS.open(path, "r");
  if (!file) return false;
  size_t length = file.readBytes(text, size - 1);
  text[length] = 0;
  file.close();
  return length > 0;
}

// The old content or the new one, also when the power fails in between.
static bool writeFile(const char* path, const char* text) {
  File file = LittleFS.open("/new", "w");
  if (!file) return false;
  bool written = file.write((const uint8_t*)text, strlen(text)) == strlen(text);
  file.close();
  return written && LittleFS.rename("/new", path);
}

static bool makeToken() {
  if (readFile(CLAIM_TOKEN_FILE, claimToken, sizeof claimToken) && strlen(claimToken) == CLAIM_TOKEN_SIZE - 1) return true;
  for (size_t i = 0; i + 8 < sizeof claimToken; i += 8) {
#ifdef ESP8266
    uint32_t chance = ESP.random();
#else
    uint32_t chance = esp_random();
#endif
    snprintf(claimToken + i, 9, "%08lx", (unsigned long)chance);
  }
  return writeFile(CLAIM_TOKEN_FILE, claimToken);
}

static bool readPort(JsonReader& json, uint16_t* port) {
  int64_t number;
  if (!json.readInteger(&number)) return json.skipValue();  // null: there is none
  *port = (uint16_t)number;
  return number > 0 && number < 65536;
}

// The credentials out of claimText.
static bool readCredentials() {
  char key[24];
  JsonReader json((const uint8_t*)claimText, strlen(claimText));
  MQTT_HOST[0] = MQTT_USERNAME[0] = MQTT_PASSWORD[0] = TOPIC_PREFIX[0] = 0;
  if (!json.take('{')) return false;
  do {
    if (!json.readKey(key, sizeof key)) return false;
    bool read = strcmp(key, "mqttHost") == 0       ? json.readString(MQTT_HOST, sizeof MQTT_HOST)
                : strcmp(key, "mqttUsername") == 0 ? json.readString(MQTT_USERNAME, sizeof MQTT_USERNAME)
                : strcmp(key, "mqttPassword") == 0 ? json.readString(MQTT_PASSWORD, sizeof MQTT_PASSWORD)
                : strcmp(key, "topicPrefix") == 0  ? json.readString(TOPIC_PREFIX, sizeof TOPIC_PREFIX - 1)
                : strcmp(key, "mqttPort") == 0     ? readPort(json, &MQTT_PORT)
                : strcmp(key, "mqttTlsPort") == 0  ? readPort(json, &MQTT_TLS_PORT)
                                                   : json.skipValue();
    if (!read) return false;
  } while (json.take(','));
  if (!json.take('}') || !MQTT_HOST[0] || !MQTT_USERNAME[0] || !MQTT_PASSWORD[0] || !TOPIC_PREFIX[0]) return false;
  snprintf(MQTT_CLIENT_ID, sizeof MQTT_CLIENT_ID, "%s", MQTT_USERNAME);
  strcat(TOPIC_PREFIX, "/");
  snprintf(TOPIC_STATUS, sizeof TOPIC_STATUS, "%sstatus", TOPIC_PREFIX);
  snprintf(TOPIC_STATE, sizeof TOPIC_STATE, "%sstate", TOPIC_PREFIX);
  snprintf(TOPIC_TELEMETRY, sizeof TOPIC_TELEMETRY, "%stelemetry", TOPIC_PREFIX);
  snprintf(TOPIC_CMD, sizeof TOPIC_CMD, "%scmd", TOPIC_PREFIX);
  snprintf(TOPIC_RESULT, sizeof TOPIC_RESULT, "%sresult", TOPIC_PREFIX);
  snprintf(TOPIC_SCHED, sizeof TOPIC_SCHED, "%ssched", TOPIC_PREFIX);
  return true;
}

// A field of the answer in claimText: the error's code, or the seconds to wait.
static bool readAnswer(const char* wanted, char* text, size_t size, int64_t* number) {
  char key[24];
  JsonReader json((const uint8_t*)claimText, strlen(claimText));
  if (!json.take('{')) return false;
  do {
    if (!json.readKey(key, sizeof key)) return false;
    if (strcmp(key, wanted) == 0) return number ? json.readInteger(number) : json.readString(text, size);
    if (!json.skipValue()) return false;
  } while (json.take(','));
  return false;
}

// Half of the time is chance, so that a fleet does not ask all at once.
static void waitBeforeNextClaim(uint32_t pauseMs) {
  claimAsked = millis();
  claimWaitMs = pauseMs / 2 + random(pauseMs / 2 + 1);
}

// The answer's status, below 0 without an answer. Its text is in claimText then.
static int sendClaim(WiFiClient& client) {
  HTTPClient http;
  snprintf(claimText, sizeof claimText, "{\"code\":\"%s\",\"hardwareId\":\"%s\",\"claimToken\":\"%s\"}", PROVISIONING_CODE,
           WiFi.macAddress().c_str(), claimToken);
  http.setTimeout(10000);
  if (!http.begin(client, SERVICE_URL "/api/v1/provisioning/claim")) return -1;
  http.addHeader("Content-Type", "application/json");
  int status = http.POST((uint8_t*)claimText, strlen(claimText));
  claimText[0] = 0;
  if (status > 0) snprintf(claimText, sizeof claimText, "%s", http.getString().c_str());
  http.end();
  client.stop();  // the next connection is that of MQTT
  return status;
}

static void claim(WiFiClient& client) {
  char code[64] = "";
  int64_t seconds = 30;
  if (!makeToken()) {
    Serial.println("latchboard: the flash cannot be written; no claim without it");
    return waitBeforeNextClaim(CLAIM_LONGEST_PAUSE_MS);
  }
  int status = sendClaim(client);
  if (status == 201 && readCredentials() && writeFile(CLAIM_ANSWER_FILE, claimText)) {
    claimDone = true;
    return;
  }
  Serial.print("latchboard: no credentials yet: ");
  Serial.print(readAnswer("error", code, sizeof code, NULL) ? code : "status");
  Serial.print(" ");
  Serial.println(status);
  if (status == 202) {  // an Admin has to agree
    readAnswer("retryAfter", NULL, 0, &seconds);
    return waitBeforeNextClaim(2000UL * (uint32_t)seconds);
  }
  if (status >= 400 && status < 500) return waitBeforeNextClaim(CLAIM_REFUSED_PAUSE_MS);
  waitBeforeNextClaim(claimBackoffMs);
  claimBackoffMs = claimBackoffMs * 2 > CLAIM_LONGEST_PAUSE_MS ? CLAIM_LONGEST_PAUSE_MS : claimBackoffMs * 2;
}

// True when the board has its credentials. Asks for them when it is time to; call it while the network is up.
static bool hasCredentials(WiFiClient& client) {
  if (claimDone) return true;
  if (!claimLooked) {
    claimLooked = true;
#ifdef ESP8266
    LittleFS.begin();
#else
    LittleFS.begin(true);  // formats the flash at the first start
#endif
    claimDone = readFile(CLAIM_ANSWER_FILE, claimText, sizeof claimText) && readCredentials();
  }
  if (!claimDone && millis() - claimAsked >= claimWaitMs) claim(client);
  return claimDone;
}
