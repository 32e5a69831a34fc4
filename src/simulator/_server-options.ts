import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues } from '../schema/index.ts'
import type { SimulatorOptions } from './simulator-options.ts'

const schema = z.object({
  host: z.string().min(1).default('127.0.0.1'),
  port: z.coerce.number().int().min(0).max(65_535).default(0),
  apiKey: z.string().min(1).optional(),
  models: z
    .union([
      z.string().transform((names) => names.split(',').map((name) => name.trim())),
      z.array(z.string()).readonly(),
    ])
    .optional(),
})

export type ServerSettings = z.output<typeof schema>

/** Takes out the server's options; the rest are options of the simulator, which checks them itself. */
export function parseServerOptions(options: Readonly<Record<string, unknown>>): {
  readonly settings: ServerSettings
  readonly simulatorOptions: SimulatorOptions
} {
  const { host, port, apiKey, models, ...simulatorOptions } = options
  const parsed = schema.safeParse({ host, port, apiKey, models })
  if (parsed.success) return { settings: parsed.data, simulatorOptions }
  const message = `options of the simulator's server: ${describeIssues(parsed.error.issues)}`
  throw new MillraceError('config_invalid', message, { cause: parsed.error })
}
