/** A png of one pixel. */
const data = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

export const image = { mediaType: 'image/png', data, dataUrl: `data:image/png;base64,${data}` } as const
