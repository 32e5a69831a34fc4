import type { ApiName } from '../schema/index.ts'
import type { EngineName } from './tokens/token-request.ts'

/** Whose API it is. */
export function providerOfApi(api: ApiName): string {
  return api === 'messages' ? 'anthropic' : 'openai'
}

/** What serves a model at that host, as far as is known: the names are OpenTelemetry's where it has one. */
export function providerAt(hostname: string, api: ApiName, engine?: EngineName): string {
  if (engine) return engine
  return hostname.endsWith('.openai.azure.com') ? 'azure.ai.openai' : providerOfApi(api)
}
