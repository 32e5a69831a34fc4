/** The longest message of a server that is read, over stdio as over HTTP. */
export const maxMessageBytes = 64 * 1024 * 1024
/** How much is read of a page that explains an error status. */
export const maxErrorBytes = 64 * 1024
