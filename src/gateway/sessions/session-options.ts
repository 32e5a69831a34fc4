import { z } from 'zod'
import { heapShare } from '../../kit/index.ts'
import { closedObject, jsonObjectSchema, safeParse } from '../../schema/index.ts'
import { damagedSession, type StoredSession } from '../../store/index.ts'

const maxNameChars = 256
const maxGroupSize = 1024
const maxTtlSeconds = 30 * 24 * 3600
const maxMetadataChars = 64 * 1024

/** A name that can stand in paths and in file names of other programs. */
const plainName = z.string().regex(/^[\w.-]{1,64}$/, 'has 1 to 64 letters, digits, dots, dashes and underscores')

export const sessionLimitsSchema = closedObject({
  maxRequests: z.int().positive().exactOptional(),
  maxTokens: z.int().positive().exactOptional().describe('Sampled tokens.'),
  maxCost: z.number().positive().exactOptional().describe('US dollars.'),
  maxConcurrent: z.int().positive().exactOptional(),
})

export type SessionLimits = z.infer<typeof sessionLimitsSchema>

export const sessionOptionsSchema = closedObject({
  taskId: z
    .string()
    .max(maxNameChars)
    .exactOptional()
    .describe('The task of the session, included in every exported row.'),
  groupSize: z.int().min(1).max(maxGroupSize).default(1).describe('How many sessions to start with these options.'),
  groupId: plainName
    .exactOptional()
    .describe('The id of an existing group adds the sessions to it. Default: a new group.'),
  ttlSeconds: z
    .number()
    .positive()
    .max(maxTtlSeconds)
    .default(3600)
    .describe('A session ends after this time without a request.'),
  metadata: jsonObjectSchema
    .refine(
      (metadata) => JSON.stringify(metadata).length <= maxMetadataChars,
      `has at most ${maxMetadataChars} characters`,
    )
    .default({})
    .describe('Shown with the session, but not to the session’s own key.'),
  limits: sessionLimitsSchema.default({}).describe('What each session may use up.'),
  selfManaged: z
    .boolean()
    .default(false)
    .describe(
      'Whether the session’s own key may also reward and end it. An agent with the key could then reward itself.',
    ),
})

export type SessionOptions = z.infer<typeof sessionOptionsSchema>
export type SessionOptionsInput = z.input<typeof sessionOptionsSchema>

const sessionDataSchema = sessionOptionsSchema.pick({
  taskId: true,
  ttlSeconds: true,
  metadata: true,
  limits: true,
  selfManaged: true,
})

export type SessionData = z.infer<typeof sessionDataSchema>

export const emptySessionData: SessionData = sessionDataSchema.parse({})

export function storedData(stored: StoredSession): SessionData {
  const checked = safeParse(sessionDataSchema, stored.data)
  if (checked.success) return checked.data
  throw damagedSession(stored.id, checked.error)
}

export interface SessionBounds {
  /** The most open sessions. Beyond it no session is started: `overloaded`. */
  readonly maxOpenSessions: number
  /** The most idle sessions that stay in memory. The others are read from the store when they are used again. */
  readonly maxRemembered: number
  /** The most memory that idle sessions hold, last bodies aside. Beyond it the least recently used are forgotten. */
  readonly maxRememberedBytes: number
  /** The most bytes of last bodies and their text, which save parsing the next ones whole. Beyond it, bodies are not kept. */
  readonly maxRememberedBodies: number
  /** The most messages in one session. Beyond it the session takes no request: `budget_exhausted`. */
  readonly maxMessages: number
  /** The most requests under way, waiting ones included. Beyond it a request is refused: `overloaded`. */
  readonly maxRunning: number
  /** `maxWaitMs` of models whose config does not set it. Beyond it a request is refused: `model_overloaded`. */
  readonly maxWaitMs: number
  /** `maxRateLimitWaitMs` of models whose config does not set it. Beyond it a request is refused: `model_rate_limited`. */
  readonly maxRateLimitWaitMs: number
  /** `maxPauseWaitMs` of models whose config does not set it. Beyond it a request is refused: `model_overloaded`. */
  readonly maxPauseWaitMs: number
  /** How often a client that asked for a stream gets a sign of life while the reply is fetched whole. */
  readonly beatMs: number
}

export const defaultSessionBounds: SessionBounds = {
  maxOpenSessions: 100_000,
  maxRemembered: 4096,
  maxRememberedBytes: heapShare(256 * 1024 * 1024),
  maxRememberedBodies: heapShare(128 * 1024 * 1024),
  maxMessages: 100_000,
  maxRunning: 16_384,
  // A restart of an engine takes one to three minutes.
  maxWaitMs: 5 * 60_000,
  maxRateLimitWaitMs: 60_000,
  maxPauseWaitMs: 5 * 60_000,
  beatMs: 30_000,
}
