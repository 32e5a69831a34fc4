import { z } from 'zod'
import { closedObject, jsonObjectSchema } from '../../schema/index.ts'
import { damagedSession, type StoredSession } from '../../store/index.ts'

const maxNameChars = 256
const maxGroupSize = 1024
const maxTtlSeconds = 30 * 24 * 3600
const maxMetadataChars = 64 * 1024

/** A name that can stand in paths and in file names of other programs. */
const plainName = z.string().regex(/^[\w.-]{1,64}$/, 'has 1 to 64 letters, digits, dots, dashes and underscores')

/** What one session may use up. */
export const sessionLimitsSchema = closedObject({
  maxRequests: z.int().positive().exactOptional(),
  maxTokens: z.int().positive().exactOptional().describe('Sampled ones.'),
  maxCost: z.number().positive().exactOptional().describe('US dollars.'),
  maxConcurrent: z.int().positive().exactOptional(),
})

export type SessionLimits = z.infer<typeof sessionLimitsSchema>

/** The options of sessions that are started together: `groupSize` of them, alike. */
export const sessionOptionsSchema = closedObject({
  taskId: z.string().max(maxNameChars).exactOptional().describe('What it is about: in every exported row.'),
  groupSize: z.int().min(1).max(maxGroupSize).default(1).describe('How many sessions to start, all alike.'),
  groupId: plainName.exactOptional().describe('That of an existing group adds to it; without one the group is new.'),
  ttlSeconds: z
    .number()
    .positive()
    .max(maxTtlSeconds)
    .default(3600)
    .describe('A session that is not used for so long ends by itself.'),
  metadata: jsonObjectSchema
    .refine(
      (metadata) => JSON.stringify(metadata).length <= maxMetadataChars,
      `has at most ${maxMetadataChars} characters`,
    )
    .default({})
    .describe('Shown with the session, but not to its own key.'),
  limits: sessionLimitsSchema.default({}).describe('What each session may use up.'),
  selfManaged: z
    .boolean()
    .default(false)
    .describe('Whether its own key may also reward and end it. An agent that has the key could then reward itself.'),
})

export type SessionOptions = z.infer<typeof sessionOptionsSchema>
export type SessionOptionsInput = z.input<typeof sessionOptionsSchema>

/** The options that the journal keeps, beside the names. */
const sessionDataSchema = sessionOptionsSchema.pick({
  taskId: true,
  ttlSeconds: true,
  metadata: true,
  limits: true,
  selfManaged: true,
})

export type SessionData = z.infer<typeof sessionDataSchema>

/** The data of a session that was started without options. */
export const nothingSaid: SessionData = sessionDataSchema.parse({})

/** The options of a stored session. Throws if they are damaged, or not what this version writes. */
export function storedData(stored: StoredSession): SessionData {
  const checked = sessionDataSchema.safeParse(stored.data)
  if (checked.success) return checked.data
  throw damagedSession(stored.id, checked.error)
}
