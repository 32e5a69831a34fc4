import { z } from 'zod'
import { pauseModes } from '../../inference/index.ts'
import { closedObject } from '../../schema/index.ts'
import { namedSchemas } from '../http/openapi.ts'

/** Bodies and replies of the API of backends: what routes check, and what OpenAPI says. */

const states = z.enum(['serving', 'pausing', 'paused', 'resuming', 'unreachable'])

export const backendListSchema = z
  .strictObject({
    epoch: z.number().describe('Of the last pause; 0 if there was none.'),
    backends: z.array(
      z.strictObject({
        id: z.string(),
        url: z.string(),
        models: z.array(z.string()),
        state: states,
        version: z.string().nullable().describe('The version of its weights, if it is known.'),
        inFlight: z.number().describe('Requests of this gateway on their way to it.'),
        epoch: z.number().exactOptional().describe('Of the pause that it is in.'),
        leaseMs: z.number().exactOptional().describe('How long that pause lasts if nobody ends it.'),
        error: z.string().exactOptional().describe('Why it did not do what it was told last.'),
      }),
    ),
  })
  .register(namedSchemas, { id: 'Backends' })

export type BackendList = z.infer<typeof backendListSchema>

const answer = z.strictObject({
  backend: z.string(),
  ok: z.boolean(),
  status: states,
  version: z.string().exactOptional(),
  mode: z.enum(pauseModes).exactOptional().describe('What the pause did to replies in the making.'),
  note: z.string().exactOptional().describe('Why that is not what was asked for.'),
  error: z.string().exactOptional(),
})

export const fleetAnswerSchema = z
  .strictObject({
    ok: z.boolean().describe('Whether all backends did what they were told: else the status is 502.'),
    epoch: z.number().exactOptional().describe('Of the pause. A resume with it ends no later pause.'),
    backends: z.array(answer),
  })
  .register(namedSchemas, { id: 'FleetAnswer' })

export type FleetReply = z.infer<typeof fleetAnswerSchema>

const epoch = z.number().int().min(1).exactOptional()
const longestPauseMs = 24 * 60 * 60_000

const pauseFields = {
  mode: z
    .enum(pauseModes)
    .default('finish')
    .describe('What happens to replies in the making: they end, are sent again, or go on from their partial tokens.'),
  ttlMs: z
    .number()
    .int()
    .min(1)
    .max(longestPauseMs)
    .exactOptional()
    .describe('How long the pause lasts if nobody ends it. Default: ten minutes.'),
  epoch: epoch.describe('The number of the pause, if you count yourself: higher than that of the last one.'),
}
const resumeFields = { epoch: epoch.describe('Ends no later pause than this one.') }
const versionFields = { version: z.string().min(1).max(256) }
const forBackends = {
  backends: z.array(z.string()).min(1).exactOptional().describe('Their ids or urls. Default: all of them.'),
}

export const orders = {
  pause: {
    one: closedObject(pauseFields).register(namedSchemas, { id: 'PauseBackend' }),
    all: closedObject({ ...pauseFields, ...forBackends }).register(namedSchemas, { id: 'PauseBackends' }),
  },
  resume: {
    one: closedObject(resumeFields).register(namedSchemas, { id: 'ResumeBackend' }),
    all: closedObject({ ...resumeFields, ...forBackends }).register(namedSchemas, { id: 'ResumeBackends' }),
  },
  version: {
    one: closedObject(versionFields).register(namedSchemas, { id: 'SetBackendVersion' }),
    all: closedObject({ ...versionFields, ...forBackends }).register(namedSchemas, { id: 'SetBackendVersions' }),
  },
} as const

export type PauseRequest = z.input<typeof orders.pause.all>
export type ResumeRequest = z.input<typeof orders.resume.all>
export type VersionRequest = z.input<typeof orders.version.all>
