import type { BackendRequest } from '../../../src/apis/backend.ts'
import { HttpBackend, type HttpBackendOptions } from '../../../src/inference/backend/http-backend.ts'
import { modelConfigSchema, type ModelConfigInput } from '../../../src/inference/config.ts'
import type { EngineName } from '../../../src/apis/index.ts'
import type { Variables } from '../../../src/kit/index.ts'

export interface Setting extends Partial<ModelConfigInput> {
  env?: Variables
  options?: HttpBackendOptions
  headers?: Record<string, string>
  caFile?: string
  engine?: EngineName
}

/** A backend of a model with these settings. */
export function openBackend(url: string, setting: Setting = {}): HttpBackend {
  const { env = {}, options, headers = {}, caFile, engine, ...config } = setting
  const backend = { url, headers, ...(caFile !== undefined && { caFile }), ...(engine && { engine }) }
  const model = modelConfigSchema.parse({ name: 'm', ...config, backends: [backend] })
  return new HttpBackend(model, model.backends[0] as (typeof model.backends)[number], env, options)
}

/** A request for one turn. */
export const ask = (more: Partial<BackendRequest> = {}): BackendRequest => ({
  messages: [{ role: 'user', content: 'hi' }],
  tools: [],
  sampling: {},
  captureTokens: false,
  sessionId: 'r-1',
  retry: 0,
  signal: new AbortController().signal,
  ...more,
})
