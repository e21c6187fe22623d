/** What the OpenAPI document says, in the form that the client's methods need. */
import type { components, paths, webhooks } from "./generated/schema.js";

export type Schemas = components["schemas"];
export type Method = "get" | "post" | "put" | "patch" | "delete";
export type PathsWith<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];
export type Operation<M extends Method, P extends keyof paths> = M extends keyof paths[P] ? paths[P][M] : never;

type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : string;
/** What a successful call gives: JSON, or the text of an export. */
export type Success<O> = O extends { responses: infer R } ? { [S in keyof R & (200 | 201 | 202)]: Json<R[S]> }[keyof R & (200 | 201 | 202)] : never;

/** Of a list: what its pages hold. */
export type Entry<S> = S extends (infer E)[] ? E : S extends { data: (infer E)[] } ? E : never;

type Part<Name extends string, T> = [T] extends [undefined | never] ? unknown : undefined extends T ? { [K in Name]?: NonNullable<T> } : { [K in Name]: T };
type Parameter<O, Place extends string> = O extends { parameters: infer All } ? (Place extends keyof All ? All[Place] : undefined) : undefined;
type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } } ? B : O extends { requestBody?: { content: { "application/json": infer B } } } ? B | undefined : undefined;

/** `path`, `query` and `body` as the operation has them, and what every call may have. */
export type CallOptions<O> = Part<"path", Parameter<O, "path">> &
  Part<"query", Parameter<O, "query">> &
  Part<"body", Body<O>> & { headers?: Record<string, string>; idempotencyKey?: string; signal?: AbortSignal };
/** No second argument is needed where all of it is optional. */
export type CallArguments<O> = {} extends CallOptions<O> ? [options?: CallOptions<O>] : [options: CallOptions<O>];

type EventBody<T> = T extends { post: { requestBody: { content: { "application/json": { data: infer Data } } } } } ? Data : never;
/** An event of a webhook or the feed, told apart by `type`. Ignore types that you do not know: a newer service may send more. */
export type Event = Exclude<{ [K in keyof webhooks]: EventBody<webhooks[K]> }[keyof webhooks], { type: "ping" }>;
export interface FeedChannel {
  channel: number;
  kind: Schemas["ChannelKind"];
  name: string;
  /** As in the device. */
  state: unknown;
}
export interface FeedDevice {
  deviceId: string;
  name: string;
  relay: "ON" | "OFF" | null;
  isOnline: boolean;
  lastSeen: string | null;
  /** Missing for a device that has one relay and nothing else. */
  channels?: FeedChannel[];
}
/** `initial_state` begins each connection. `resync`: events were missed that cannot be sent again; read the history. */
export type FeedEvent = Event | { type: "initial_state"; devices: FeedDevice[] } | { type: "resync" };
