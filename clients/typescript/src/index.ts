/** Client of Latchboard: typed calls, the live feed with resume, webhook verification. */
export { Latchboard } from "./client.js";
export type { RunOptions, WaitOptions } from "./client.js";
export * from "./errors.js";
export { Feed } from "./feed.js";
export type { FeedOptions } from "./feed.js";
export type { ClientOptions } from "./http.js";
export type { Event, FeedDevice, FeedEvent, Schemas } from "./types.js";
export { sign, verifyWebhook } from "./webhooks.js";
export type { Delivery } from "./webhooks.js";
