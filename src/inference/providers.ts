import type { ApiName } from '../schema/index.ts'

export function isOpenAiHost(hostname: string): boolean {
  return hostname === 'api.openai.com' || hostname.endsWith('.api.openai.com') || isAzureHost(hostname)
}

export function isAnthropicHost(hostname: string): boolean {
  return hostname === 'api.anthropic.com'
}

export function isMistralHost(hostname: string): boolean {
  return hostname === 'api.mistral.ai'
}

function isAzureHost(hostname: string): boolean {
  return hostname.endsWith('.openai.azure.com')
}

/** The provider at that host, in OpenTelemetry's words, if it is a known one. */
export function providerAt(hostname: string): string | undefined {
  if (isAzureHost(hostname)) return 'azure.ai.openai'
  if (isMistralHost(hostname)) return 'mistral_ai'
  if (isAnthropicHost(hostname)) return 'anthropic'
  return isOpenAiHost(hostname) ? 'openai' : undefined
}

/** The provider that made the API. */
export function providerOfApi(api: ApiName): string {
  return api === 'messages' ? 'anthropic' : 'openai'
}
